//! What the usual answers look like, as far as a client needs to know; the rest stays JSON text.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::CallError;

/// A result as it came: JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(Box<str>);

impl Raw {
    pub(super) fn new(json: &RawValue) -> Self {
        Self::text(json.get())
    }

    /// Of JSON text that was read as such.
    pub(super) fn text(json: &str) -> Self {
        Self(json.into())
    }

    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        &self.0
    }

    /// Reads it as a value of the caller's type.
    ///
    /// # Errors
    /// [`CallError::Answer`] with the place that does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(&self.0).map_err(|error| CallError::Answer(error.to_string().into()))
    }
}

/// What a server said about itself (rule M8).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Discovered {
    /// The revisions that it speaks.
    #[serde(default)]
    pub supported_versions: Vec<String>,
    /// Its capabilities, as they came.
    #[serde(default)]
    pub capabilities: Option<Box<RawValue>>,
    /// What it is for, for models.
    #[serde(default)]
    pub instructions: Option<String>,
}

/// One tool of a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolInfo {
    /// Its name.
    pub name: String,
    /// What it does, for models.
    #[serde(default)]
    pub description: Option<String>,
    /// The JSON schema of its arguments, as it came.
    pub input_schema: Box<RawValue>,
}

/// The result of a tool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolResult {
    /// The whole result, unknown members included (rule M10).
    pub raw: Raw,
    /// The tool failed, and says so to the model.
    pub is_error: bool,
    /// Content for a model, a JSON array as it came; empty where the result is no complete one.
    pub content: Box<RawValue>,
    /// Data for a program, as it came.
    pub structured: Option<Box<RawValue>>,
    /// `complete`, `input_required`, or what an extension defines (rule M4).
    pub result_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolMembers {
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    content: Option<Box<RawValue>>,
    #[serde(default)]
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    result_type: Option<String>,
}

impl ToolResult {
    /// Reads the result of `tools/call`.
    ///
    /// # Errors
    /// [`CallError::Answer`] if it is no object, or its `resultType` is none that a client without extensions knows.
    pub fn read(raw: Raw) -> Result<Self, CallError> {
        let members: ToolMembers = raw.parse()?;
        let result_type = members.result_type.unwrap_or_else(|| "complete".to_owned());
        if !matches!(&*result_type, "complete" | "input_required" | "task") {
            return Err(CallError::Answer(format!("resultType {result_type:?} is unknown").into()));
        }
        let content = members.content.map_or_else(|| RawValue::from_string("[]".to_owned()), Ok);
        let content = content.map_err(|error| CallError::Answer(error.to_string().into()))?;
        let is_error = members.is_error;
        Ok(Self { raw, is_error, content, structured: members.structured_content, result_type })
    }

    /// The texts of its content, one after the other.
    #[must_use]
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct Block {
            #[serde(default)]
            text: String,
        }
        let blocks: Vec<Block> = serde_json::from_str(self.content.get()).unwrap_or_default();
        blocks.into_iter().map(|block| block.text).collect()
    }
}
