//! [`DeliveryRecord`]: what the state keeps of the delivery of a stack.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::state::StackState,
};

use super::controller::DeliveryTarget;

/// The key of the record in the runtimes' part of a state.
const KEY: &str = "delivery";

/// Who delivers the objects of a stack, and what was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryRecord {
    /// The controller and its object.
    #[serde(flatten)]
    pub target: DeliveryTarget,
    /// The digests at which the tag may stand: the last one, and before it the one that a push was to replace.
    pub digests: Vec<String>,
}

impl DeliveryRecord {
    /// The record of a stack; `None` if Konverge itself applies its objects.
    ///
    /// # Errors
    /// A newer Konverge wrote it.
    pub(crate) fn read(data: &BTreeMap<String, Value>) -> Result<Option<Self>, UserError> {
        let Some(value) = data.get(KEY).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let record = Self::deserialize(value).map_err(|error| {
            let what = format!("its record of the delivery cannot be read: {error}");
            UserError::new(ErrorKind::State, what).hint("use the version of Konverge that wrote it")
        })?;
        Ok(Some(record))
    }

    /// Its key and value in the state.
    pub(crate) fn entry(&self) -> (&'static str, Value) {
        let value = serde_json::to_value(self).expect("a record is plain data");
        (KEY, value)
    }
}

/// Removes the record: Konverge applies the objects again, or there are none.
pub(crate) fn forget(state: &mut StackState) {
    state.runtime.remove(KEY);
}
