//! The recorded outputs of a stack, and their readers.

use serde::Serialize;
use serde_json::Value;

use super::show;
use crate::StateBackend;
use konverge_base::{
    error::UserError,
    model::{StackId, stack_output::OutputName},
};

/// The outputs that a stack publishes.
#[derive(Debug, Clone, Serialize)]
pub struct StackOutputs {
    /// Version of this format.
    pub version: u32,
    /// Identity of the stack.
    pub stack: StackId,
    /// Sorted by name.
    pub outputs: Vec<OutputRow>,
}

/// One output.
#[derive(Debug, Clone, Serialize)]
pub struct OutputRow {
    /// Its name.
    pub name: OutputName,
    /// The value; masked like any value of a Spec.
    pub value: Value,
    /// The serial that recorded this value first.
    pub serial: u64,
    /// The stacks that were applied with it.
    pub readers: Vec<OutputReader>,
}

/// A stack that was applied with an output.
#[derive(Debug, Clone, Serialize)]
pub struct OutputReader {
    /// Identity of the stack.
    pub stack: StackId,
    /// False if it was applied with an earlier value.
    pub current: bool,
}

/// The outputs of a stack.
///
/// # Errors
/// There is no such state, or the store cannot be read.
pub async fn outputs(backend: &StateBackend, stack: &StackId) -> Result<StackOutputs, UserError> {
    let state = show(backend, stack, None).await?.state;
    let known = backend.states.known().await?;
    let readers_of = |name: &OutputName, digest: &str| {
        let entries = known.entries.iter().filter(|(_, entry)| entry.is_known());
        let readers = entries.filter_map(|(id, entry)| {
            let read = |read: &&konverge_state::IndexedRead| {
                read.output.stack == *stack && read.output.name == *name
            };
            let read = entry.reads.iter().find(read)?;
            Some(OutputReader {
                stack: id.clone(),
                current: read.digest == digest,
            })
        });
        readers.collect()
    };
    let rows = state.outputs.iter().map(|(name, output)| OutputRow {
        name: name.clone(),
        value: backend.secrets.mask_value(&output.value),
        serial: output.serial,
        readers: readers_of(name, &output.digest),
    });
    Ok(StackOutputs {
        version: 1,
        stack: stack.clone(),
        outputs: rows.collect(),
    })
}
