//! What is known about the tools of a server: which parameters travel in headers too, and which tools cannot be called.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use serde_json::value::RawValue;
use steady_core::rpc::{members, text};

use crate::headers::{HeaderLines, ParamHeader, mirror_params, param_headers};
use crate::warn::Warn;

/// Tools with annotations that are remembered. One beyond is called without its headers.
const MOST: usize = 4096;

/// The annotated tools, as `tools/list` named them last.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    tools: Mutex<BTreeMap<Box<str>, Known>>,
    read: AtomicU64,
}

#[derive(Clone, Debug)]
enum Known {
    Mirrored(Arc<[ParamHeader]>),
    Invalid(Box<str>),
}

impl Schemas {
    fn tools(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Known>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the tools were read from the first page to the last because a call missed its headers.
    pub(super) fn times_read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// They were read once more.
    pub(super) fn all_read(&self) {
        self.read.fetch_add(1, Ordering::Release);
    }

    /// Reads a result of `tools/list`. The same without the tools that break the rules of annotations (rule H3), if there
    /// are any: each is warned of.
    pub(super) fn learn(&self, result: &str, warn: &Warn) -> Option<String> {
        let [tools] = members(result, &["tools"])?;
        let all: Vec<&RawValue> = serde_json::from_str(tools?).ok()?;
        let kept: Vec<&RawValue> = all.iter().copied().filter(|tool| self.learn_tool(tool.get(), warn)).collect();
        if kept.len() == all.len() {
            return None;
        }
        let mut result: BTreeMap<String, Box<RawValue>> = serde_json::from_str(result).ok()?;
        result.insert("tools".to_owned(), serde_json::value::to_raw_value(&kept).ok()?);
        serde_json::to_string(&result).ok()
    }

    /// Whether this tool can be used.
    fn learn_tool(&self, tool: &str, warn: &Warn) -> bool {
        let Some([Some(name), schema]) = members(tool, &["name", "inputSchema"]) else { return true };
        let Some(name) = text(name) else { return true };
        let known = schema.filter(|schema| may_be_annotated(schema)).and_then(|schema| {
            let schema: Value = serde_json::from_str(schema).ok()?;
            match param_headers(&schema) {
                Ok(params) if params.is_empty() => None,
                Ok(params) => Some(Known::Mirrored(params.into())),
                Err(fault) => Some(Known::Invalid(fault.to_string().into())),
            }
        });
        let fault = match &known {
            Some(Known::Invalid(fault)) => Some(fault.clone()),
            Some(Known::Mirrored(_)) | None => None,
        };
        let mut tools = self.tools();
        match known {
            None => {
                tools.remove(&*name);
            }
            Some(known) if tools.len() < MOST || tools.contains_key(&*name) => {
                tools.insert(name.as_ref().into(), known);
            }
            Some(_) => {}
        }
        drop(tools);
        if let Some(fault) = &fault {
            warn.say(&format!("the tool {name:?} is left out: {fault}"));
        }
        fault.is_none()
    }

    /// The header lines of a call of this tool.
    ///
    /// # Errors
    /// Why it cannot be called: its annotations, or an argument without a header form.
    pub(super) fn headers(&self, tool: &str, arguments: &[u8]) -> Result<HeaderLines, Box<str>> {
        let known = self.tools().get(tool).cloned();
        match known {
            None => Ok(HeaderLines::new()),
            Some(Known::Invalid(fault)) => Err(format!("the tool {tool:?} cannot be used: {fault}").into()),
            Some(Known::Mirrored(params)) => {
                let arguments: Value = serde_json::from_slice(arguments).map_err(|error| error.to_string())?;
                mirror_params(&params, &arguments).map_err(|error| error.to_string().into())
            }
        }
    }
}

/// Whether it is worth a closer look. An annotation may be spelled with escapes.
fn may_be_annotated(schema: &str) -> bool {
    schema.contains("x-mcp-header") || schema.contains('\\')
}
