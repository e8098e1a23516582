//! The precondition of a write: the object as the plan saw it. A write is bound to its UID and its version.
//! If only the version changed, the object is read again; if the owner changed, it is not written. Without a
//! change this needs no request.

use serde_json::Value;

use super::super::{KEEP, OWNER, PROTECT, api::discovery::ResourceType};
use super::{fetch, object_ref, plan_item::PlanItem};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::StackId,
};

/// Maximum number of retries after concurrent writes.
pub(crate) const TRIES: u32 = 10;

/// Object to which a write is bound: its UID, its version, and its marks.
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
    /// Makes the object this stack's: an earlier attempt, whose answer was lost, may have done so.
    WritingFor(&'a str),
    /// Writes an object that the stacks of a project share: another one of them may own it by now.
    WritingShared(&'a StackId),
    Deleting,
}

impl Precondition {
    /// From the live object.
    pub(crate) fn from_object(object: &Value) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self {
            uid: text("uid"),
            version: text("resourceVersion"),
            marks: MARKS.map(|mark| object_ref::annotation(object, mark).map(str::to_owned)),
        }
    }

    /// The stack that the object names as its owner.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.marks[0].as_deref()
    }

    /// Reads the object again and checks that the write is still allowed; `None` if it is gone.
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

    /// Checks that a write to an object is still allowed, from the object as it was just read.
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
        let what = format!(
            "{} is not changed: its annotation `{mark}` changed since the plan, and is now {}",
            subject.title(),
            match set {
                Some(text) => format!("`{}`", text.escape_debug()),
                None => "gone".to_owned(),
            }
        );
        Err(UserError::new(ErrorKind::Policy, what)
            .hint("run the command again: it plans with the current object"))
    }
}

/// The error that another object has the name, or none.
pub(crate) fn another_object(subject: &PlanItem, why: impl std::fmt::Display) -> UserError {
    let what = format!(
        "{} is no longer the object that was planned: {why}",
        subject.title()
    );
    UserError::new(ErrorKind::Kubernetes, what)
        .hint("run the command again: it plans with the current object")
}
