//! Reads the recorded outputs of a stack, and the stacks that read them.

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
    /// The version of this format.
    pub version: u32,
    /// The identity of the stack.
    pub stack: StackId,
    /// The outputs, sorted by name.
    pub outputs: Vec<OutputRow>,
}

/// One output of a stack.
#[derive(Debug, Clone, Serialize)]
pub struct OutputRow {
    /// The name of the output.
    pub name: OutputName,
    /// The value, masked like any value of a Spec.
    pub value: Value,
    /// The first serial that recorded this value.
    pub serial: u64,
    /// The stacks that were applied with this output.
    pub readers: Vec<OutputReader>,
}

/// A stack that was applied with an output.
#[derive(Debug, Clone, Serialize)]
pub struct OutputReader {
    /// The identity of the stack.
    pub stack: StackId,
    /// False if the stack was applied with an earlier value.
    pub current: bool,
}

/// Returns the recorded outputs of a stack.
///
/// # Errors
/// The stack has no state, or the store cannot be read.
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
