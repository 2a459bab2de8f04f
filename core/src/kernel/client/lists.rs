//! Lists of a server over all their pages, within bounds.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::caller::Caller;
use super::error::CallError;
use super::tools::{Raw, ToolInfo};
use super::{Request, changes::Item};
use crate::rpc::{encode, members, method, text};

/// Pages of a list that are read at most.
const PAGES: usize = 1000;
/// Bytes of them at most, and items, which are small on the wire and larger here.
const LISTED: usize = 64 << 20;
const ITEMS: usize = 100_000;

impl Caller {
    /// All tools of the server, over all pages. The client's maximum holds for all of them together.
    ///
    /// # Errors
    /// [`CallError`]; also if the server's cursors go in a circle, or its pages hold more than 64 MiB or 100 000 tools.
    pub async fn list_tools(&self) -> Result<Vec<ToolInfo>, CallError> {
        let tools = self.list(method::TOOLS_LIST, ("tools", "name"), false).await?;
        tools.into_iter().map(|item| item.value.parse()).collect()
    }

    /// All items of the list that `method` gives in `member`, each once by its identifier: the one that was read last, in the
    /// place of the first. Bounds as for [`list_tools`](Self::list_tools). A repeat asks the retry budget first.
    pub(super) async fn list(
        &self,
        method: &str,
        (member, identifier): (&str, &str),
        mut repeats: bool,
    ) -> Result<Vec<Item>, CallError> {
        let (mut items, mut places, mut cursors) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let mut params = String::from("{}");
        let (start, maximum) = (self.shared.timer.now(), self.shared.config.limits.maximum);
        let mut bytes = 0;
        loop {
            let spent = self.shared.timer.now().saturating_since(start);
            let left = maximum.map(|maximum| maximum.saturating_sub(spent));
            let page = self.call(Request::raw(method, params).safe().repeats(repeats).max(left)).await?;
            repeats = false;
            bytes += page.get().len();
            let next = read_page(&page, (member, identifier), &mut items, &mut places).ok_or_else(|| {
                CallError::Answer(format!("{method} has no list of {member} with a {identifier}").into())
            })?;
            if bytes > LISTED || items.len() > ITEMS {
                let what = format!("{method} has more than {LISTED} bytes or {ITEMS} items");
                return Err(CallError::Answer(what.into()));
            }
            let Some(cursor) = next else { return Ok(items) };
            let mut next = b"{\"cursor\":".to_vec();
            encode::string(&mut next, &cursor);
            next.push(b'}');
            params = String::from_utf8(next).unwrap_or_default();
            if !cursors.insert(cursor) || cursors.len() > PAGES {
                return Err(CallError::Answer(format!("the pages of {method} have no end").into()));
            }
        }
    }
}

/// Adds the items of a page; the cursor of the next one. `None` if it is no page.
fn read_page(
    page: &Raw,
    (member, identifier): (&str, &str),
    items: &mut Vec<Item>,
    places: &mut BTreeMap<Box<str>, usize>,
) -> Option<Option<String>> {
    let [list, cursor] = members(page.get(), &[member, "nextCursor"])?;
    let values: Vec<&RawValue> = serde_json::from_str(list?).ok()?;
    for value in values {
        let [id] = members(value.get(), &[identifier])?;
        let id: Box<str> = text(id?)?.into();
        let item = Item { id: id.clone(), value: Raw::new(value) };
        match places.get(&id).and_then(|place| items.get_mut(*place)) {
            Some(known) => *known = item,
            None => {
                places.insert(id, items.len());
                items.push(item);
            }
        }
    }
    let cursor = cursor.filter(|cursor| *cursor != "null");
    match cursor {
        None => Some(None),
        Some(cursor) => Some(Some(text(cursor)?.into())),
    }
}
