//! The precondition of a write: the object as the plan read it. A write is bound to the object's UID and
//! version. If only the version has changed, the object is read again; if the owner has changed, it is not
//! written. Without a change no request is needed.

use serde_json::Value;

use super::super::{KEEP, OWNER, PROTECT, api::discovery::ResourceType};
use super::{fetch, object_ref, plan_item::PlanItem};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::StackId,
};

/// Maximum number of retries after concurrent writes.
pub(crate) const TRIES: u32 = 10;

/// The identity of the object to write: its UID, its version, and the annotations that restrict writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Precondition {
    pub uid: String,
    pub version: String,
    marks: [Option<String>; 3],
}

/// The annotations that restrict writes to an object; the first one is the owner.
const MARKS: [&str; 3] = [OWNER, PROTECT, KEEP];

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind<'a> {
    /// Writes an object and makes this stack its owner. An earlier attempt whose response was lost may have
    /// done so already.
    WritingFor(&'a str),
    /// Writes an object that the stacks of a project share. Another one of these stacks may be its owner by
    /// now.
    WritingShared(&'a StackId),
    Deleting,
}

impl Precondition {
    /// Creates the precondition from a live object.
    pub(crate) fn from_object(object: &Value) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self {
            uid: text("uid"),
            version: text("resourceVersion"),
            marks: MARKS.map(|mark| object_ref::annotation(object, mark).map(str::to_owned)),
        }
    }

    /// Returns the stack that the object names as its owner.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.marks[0].as_deref()
    }

    /// Reads the object again and checks that the write is still allowed; `None` if the object is gone.
    pub(crate) async fn refetch(
        self,
        subject: &PlanItem,
        of: &ResourceType,
        doing: WriteKind<'_>,
    ) -> Result<Option<Self>, UserError> {
        let Some(object) = fetch::get(&subject.cluster, of, &subject.name).await? else {
            return Ok(None);
        };
        self.check_current(&object, subject, doing).map(Some)
    }

    /// Checks whether a write is still allowed, by an object that was just read.
    pub(crate) fn check_current(
        &self,
        object: &Value,
        subject: &PlanItem,
        doing: WriteKind<'_>,
    ) -> Result<Self, UserError> {
        let now = Self::from_object(object);
        if now.uid != self.uid {
            return Err(another_object(subject, "it was recreated"));
        }
        let bears = match doing {
            WriteKind::WritingFor(_) | WriteKind::WritingShared(_) => &MARKS[..1],
            WriteKind::Deleting => &MARKS[..],
        };
        let is_ours = |mark: Option<&str>| match doing {
            WriteKind::WritingFor(owner) => mark == Some(owner),
            WriteKind::WritingShared(stack) => mark.is_some_and(|owner| stack.is_sibling_of(owner)),
            WriteKind::Deleting => false,
        };
        let mut marks = bears.iter().zip(self.marks.iter().zip(&now.marks));
        let changed = marks.find(|(_, (before, after))| before != after && !is_ours(after.as_deref()));
        let Some((mark, (_, set))) = changed else {
            return Ok(now);
        };
        let title = subject.title();
        let now = set
            .as_ref()
            .map_or("gone".to_owned(), |text| format!("`{}`", text.escape_debug()));
        let what = format!(
            "{title} is not changed: its annotation `{mark}` changed since the plan, and is now {now}"
        );
        Err(UserError::new(ErrorKind::Policy, what)
            .hint("run the command again: it plans with the current object"))
    }
}

/// Reads an object that existed when it was planned.
///
/// # Errors
/// The object is gone.
pub(crate) async fn read_again(subject: &PlanItem, of: &ResourceType) -> Result<Value, UserError> {
    let found = fetch::get(&subject.cluster, of, &subject.name).await?;
    found.ok_or_else(|| another_object(subject, "it is gone"))
}

/// Returns the error that the object of this name is another one now, or is gone.
pub(crate) fn another_object(subject: &PlanItem, why: impl std::fmt::Display) -> UserError {
    let title = subject.title();
    let what = format!("{title} is no longer the object that was planned: {why}");
    UserError::new(ErrorKind::Kubernetes, what)
        .hint("run the command again: it plans with the current object")
}
