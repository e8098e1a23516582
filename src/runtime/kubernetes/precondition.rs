//! An object as the plan saw it. What is done to it is bound to its UID and its version: one that only changed since is
//! looked at again, one that changed hands is left alone. While nothing changed that costs no request.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{KEEP, OWNER, PROTECT, discovery::ResourceType, fetch, object_ref, plan::PlanItem};
use crate::error::{ErrorKind, UserError};

/// How often a write is tried anew that another one came before.
pub(super) const TRIES: u32 = 10;

/// What a write is bound to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Precondition {
    pub uid: String,
    pub version: String,
    marks: [Option<String>; 3],
}

/// The annotations that say what may be done to an object; the first says whose it is.
const MARKS: [&str; 3] = [OWNER, PROTECT, KEEP];

/// What a write is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteKind<'a> {
    /// Making it this stack's: an earlier try, whose answer was lost, may have done so.
    WritingFor(&'a str),
    Deleting,
}

impl Precondition {
    /// As the server has it.
    pub fn from_object(object: &Value) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self {
            uid: text("uid"),
            version: text("resourceVersion"),
            marks: MARKS.map(|mark| object_ref::annotation(object, mark).map(str::to_owned)),
        }
    }

    /// As it was put into a plan's preparation by [`Precondition::keep`].
    pub fn load(private: &Value) -> Option<Self> {
        Self::deserialize(&private["seen"]).ok()
    }

    /// Puts it into a plan's preparation.
    pub fn keep(object: &Value, private: &mut Value) {
        private["seen"] = json!(Self::from_object(object));
    }

    /// The object as it is now, if the same may still be done to it; `None` if it is gone.
    pub async fn refetch(
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

    /// As [`Precondition::again`], of an object at hand.
    pub fn check_current(
        &self,
        object: &Value,
        subject: &PlanItem,
        doing: WriteKind<'_>,
    ) -> Result<Self, UserError> {
        let now = Self::from_object(object);
        if now.uid != self.uid {
            return Err(another_object(subject, "it was recreated"));
        }
        let (bears, owner) = match doing {
            WriteKind::WritingFor(owner) => (&MARKS[..1], Some(owner)),
            WriteKind::Deleting => (&MARKS[..], None),
        };
        let mut marks = bears.iter().zip(self.marks.iter().zip(&now.marks));
        let changed = marks
            .find(|(_, (before, after))| before != after && (owner.is_none() || after.as_deref() != owner));
        let Some((mark, (_, set))) = changed else {
            return Ok(now);
        };
        let what = format!(
            "{} is not touched: its annotation `{mark}`, which the plan saw otherwise, is now {}",
            subject.title(),
            match set {
                Some(text) => format!("`{}`", text.escape_debug()),
                None => "gone".to_owned(),
            }
        );
        Err(UserError::new(ErrorKind::Policy, what).hint("run it again: a new plan sees what is there now"))
    }
}

/// There is another one of that name, or none.
pub(super) fn another_object(subject: &PlanItem, why: impl std::fmt::Display) -> UserError {
    let what = format!(
        "{} is not the object any more that the plan saw: {why}",
        subject.title()
    );
    UserError::new(ErrorKind::Kubernetes, what).hint("run it again: a new plan sees what is there now")
}
