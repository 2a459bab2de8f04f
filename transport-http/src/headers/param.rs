//! Tool parameters mirrored into `Mcp-Param-*` headers (rules H3, H9).
//!
//! A tool's `inputSchema` marks parameters with `x-mcp-header`. [`param_headers`] reads the marks, [`mirror_params`] is
//! the client's side, [`check_params`] the server's.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::value::{decode_value, encode_value};
use super::{HeaderError, Headers, PARAM_PREFIX, single};

const ANNOTATION: &str = "x-mcp-header";

/// Integers between minus and plus this are the ones that every JSON reader keeps exact: `2^53 - 1`.
const SAFE: i64 = (1 << 53) - 1;

/// How deep a schema may be nested. JSON parsers stop at about the same depth.
const MAX_DEPTH: usize = 128;

/// One parameter that travels in a header too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    header: Box<str>,
    path: Vec<Box<str>>,
    kind: ParamKind,
}

impl ParamHeader {
    /// The full header name: `Mcp-Param-` and the annotation's value.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }

    /// The property names that lead from the arguments to the value.
    #[must_use]
    pub fn path(&self) -> &[Box<str>] {
        &self.path
    }

    /// The type that the schema gives the parameter.
    #[must_use]
    pub const fn kind(&self) -> ParamKind {
        self.kind
    }

    /// The value in these arguments. Null counts as absent (rule H9).
    fn value<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        let found = self.path.iter().try_fold(arguments, |value, key| value.get(&**key));
        found.filter(|value| !value.is_null())
    }
}

/// The types that can be mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParamKind {
    /// A string, as it is.
    String,
    /// An integer in the safe range, in decimal; compared as a number.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// Why the annotations of a tool are invalid: a client leaves the tool out of its list (rule H3). The peer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaFault {
    /// The annotation is not a string that can be part of a header name.
    #[error("x-mcp-header is not a header name")]
    BadName,
    /// Two annotations differ in case only, or not at all.
    #[error("x-mcp-header {name:?} occurs twice")]
    Repeated {
        /// The later one.
        name: Box<str>,
    },
    /// The annotated parameter is not a string, integer or boolean.
    #[error("x-mcp-header {name:?} is on a parameter that is not a string, integer or boolean")]
    BadType {
        /// The annotation.
        name: Box<str>,
    },
    /// The annotation stands where only `properties` does not lead: in an array, a composition, a definition, the root.
    #[error("x-mcp-header is not reachable through properties alone")]
    Unreachable,
    /// The schema is nested deeper than 128 levels.
    #[error("the schema is nested too deep")]
    TooDeep,
}

/// The mirrored parameters of a tool, by its `inputSchema`, in the order of the schema's members.
///
/// # Errors
/// [`SchemaFault`] if any annotation breaks the rules; the tool is then unusable over HTTP.
pub fn param_headers(input_schema: &Value) -> Result<Vec<ParamHeader>, SchemaFault> {
    let mut walk = Walk::default();
    walk.schema(input_schema, true, 0)?;
    Ok(walk.found)
}

#[derive(Default)]
struct Walk {
    path: Vec<Box<str>>,
    names: BTreeSet<String>,
    found: Vec<ParamHeader>,
}

impl Walk {
    /// `reachable`: only `properties` lies between the root and here.
    fn schema(&mut self, schema: &Value, reachable: bool, depth: usize) -> Result<(), SchemaFault> {
        if depth > MAX_DEPTH {
            return Err(SchemaFault::TooDeep);
        }
        if let Value::Array(list) = schema {
            return list.iter().try_for_each(|item| self.schema(item, false, depth + 1));
        }
        let Value::Object(members) = schema else {
            return Ok(());
        };
        if let Some(annotation) = members.get(ANNOTATION) {
            self.annotation(annotation, members, reachable)?;
        }
        for (keyword, value) in members {
            match keyword.as_str() {
                // Data, not schemas.
                ANNOTATION | "const" | "enum" | "default" | "examples" => {}
                // Maps whose keys are names and not keywords.
                "properties" => self.named(value, reachable, depth + 1)?,
                "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    self.named(value, false, depth + 1)?;
                }
                _ => self.schema(value, false, depth + 1)?,
            }
        }
        Ok(())
    }

    fn named(&mut self, map: &Value, reachable: bool, depth: usize) -> Result<(), SchemaFault> {
        let Value::Object(map) = map else {
            return Ok(());
        };
        for (name, schema) in map {
            self.path.push(name.as_str().into());
            self.schema(schema, reachable, depth)?;
            self.path.pop();
        }
        Ok(())
    }

    fn annotation(
        &mut self,
        annotation: &Value,
        members: &Map<String, Value>,
        reachable: bool,
    ) -> Result<(), SchemaFault> {
        let name = annotation.as_str().unwrap_or_default();
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(SchemaFault::BadName);
        }
        if !reachable || self.path.is_empty() {
            return Err(SchemaFault::Unreachable);
        }
        let kind = members.get("type").and_then(kind);
        let kind = kind.ok_or_else(|| SchemaFault::BadType { name: name.into() })?;
        if !self.names.insert(name.to_ascii_lowercase()) {
            return Err(SchemaFault::Repeated { name: name.into() });
        }
        self.found.push(ParamHeader { header: format!("{PARAM_PREFIX}{name}").into(), path: self.path.clone(), kind });
        Ok(())
    }
}

/// One primitive type, alone or together with null.
fn kind(schema_type: &Value) -> Option<ParamKind> {
    let name = match schema_type {
        Value::Array(list) => {
            let mut types = list.iter().filter(|name| *name != "null");
            match (types.next(), types.next()) {
                (Some(only), None) => only.as_str()?,
                (None | Some(_), _) => return None,
            }
        }
        Value::String(name) => name,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    match name {
        "string" => Some(ParamKind::String),
        "integer" => Some(ParamKind::Integer),
        "boolean" => Some(ParamKind::Boolean),
        _ => None,
    }
}

/// The characters of a header name.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// An argument cannot be put in a header: an integer outside the safe range, a fraction, or not a primitive value.
/// Caller misuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the argument for {header} cannot travel in a header")]
pub struct Unmirrorable {
    /// The header's name.
    pub header: Box<str>,
}

/// Header lines to send: name and value.
pub type HeaderLines = Vec<(Box<str>, Box<str>)>;

/// The client's headers for a call with these arguments; absent and null parameters have none (rule H9).
///
/// # Errors
/// [`Unmirrorable`] if an argument is of a kind that has no header form.
pub fn mirror_params(declared: &[ParamHeader], arguments: &Value) -> Result<HeaderLines, Unmirrorable> {
    let mut headers = Vec::new();
    for param in declared {
        let Some(value) = param.value(arguments) else {
            continue;
        };
        let text: Box<str> = match value {
            Value::String(text) => encode_value(text).into(),
            Value::Bool(true) => "true".into(),
            Value::Bool(false) => "false".into(),
            Value::Number(number) => match integer(&number.to_string()) {
                Some(integer) => integer.to_string().into(),
                None => return Err(unmirrorable(param)),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => return Err(unmirrorable(param)),
        };
        headers.push((param.header.clone(), text));
    }
    Ok(headers)
}

fn unmirrorable(param: &ParamHeader) -> Unmirrorable {
    Unmirrorable { header: param.header.clone() }
}

/// The server's check of every declared parameter against the call's arguments (rules H3, H9).
///
/// A header whose parameter is absent or null in the body is a mismatch too: whoever routed by it saw another call.
/// `Mcp-Param-*` headers that the tool does not declare are ignored.
///
/// # Errors
/// [`HeaderError`] with 400 / -32020: missing, repeated, malformed, badly encoded, or different.
pub fn check_params<H: Headers + ?Sized>(
    headers: &H,
    declared: &[ParamHeader],
    arguments: &Value,
) -> Result<(), HeaderError> {
    for param in declared {
        let name = || param.header.clone();
        match (single(headers, &param.header)?, param.value(arguments)) {
            (None, None) => {}
            (None, Some(_)) => return Err(HeaderError::Missing { header: name() }),
            (Some(_), None) => return Err(HeaderError::Mismatch { header: name() }),
            (Some(header), Some(value)) => {
                let decoded = decode_value(header).map_err(|_| HeaderError::BadEncoding { header: name() })?;
                if !matches_value(&decoded, value) {
                    return Err(HeaderError::Mismatch { header: name() });
                }
            }
        }
    }
    Ok(())
}

fn matches_value(header: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => header == text,
        Value::Bool(true) => header == "true",
        Value::Bool(false) => header == "false",
        Value::Number(number) => {
            let body = integer(&number.to_string());
            body.is_some() && body == integer(header)
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The safe integer that a JSON number is equal to: `42`, `42.0` and `4.2e1` are the same. None: it is none.
fn integer(text: &str) -> Option<i64> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || leading_zero || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // The value is `significant * 10^shift`; the dropped zeros and the fraction's length move the point.
    let dropped = digits.len() - significant.len();
    let shift = i64::from(exponent) + i64::try_from(dropped).ok()? - i64::try_from(fraction.len()).ok()?;
    let power = 10_i64.checked_pow(u32::try_from(shift).ok()?)?;
    let value = significant.parse::<i64>().ok()?.checked_mul(power)?;
    (value <= SAFE).then_some(if negative { -value } else { value })
}
