//! Decides in which form the contents of a task are kept and shown: as JSON text, and never by `Debug`.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::effect::decode;
use crate::task::TaskError;

/// JSON text: a task's payload, progress, question, answer or outcome.
#[derive(Clone, PartialEq, Eq)]
pub struct Body(Box<str>);

impl Body {
    /// The JSON of a value. A `RawValue` of serde_json is taken as it is.
    ///
    /// # Errors
    ///
    /// [`TaskError::Encoding`].
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, TaskError> {
        serde_json::to_string(value).map(|text| Self(text.into())).map_err(|_| TaskError::Encoding)
    }

    /// This JSON text, as it is.
    ///
    /// # Errors
    ///
    /// [`TaskError::Encoding`]: it is no JSON.
    pub fn from_json(text: &str) -> Result<Self, TaskError> {
        serde_json::from_str::<&serde_json::value::RawValue>(text).map_err(|_| TaskError::Encoding)?;
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// The value, decoded anew: no two callers share one.
    ///
    /// # Errors
    ///
    /// [`TaskError::Encoding`]: it has another type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, TaskError> {
        decode(self.0.as_bytes()).ok_or(TaskError::Encoding)
    }

    pub(crate) fn into_json(self) -> Box<str> {
        self.0
    }

    /// The text as it was stored.
    pub(crate) fn stored(text: String) -> Self {
        Self(text.into())
    }
}

/// Shows no content.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body(..)")
    }
}
