//! [`StackSummary`]: the facts about a stack that an overview and a search show. It is in the index, so that
//! they need not read every state.
//!
//! In the index it is one text, which is parsed only when it is shown: JSON, or encrypted with age if states
//! are. An entry of an earlier version has none.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    DocumentWriter, StateError, StateStore, WriteReason,
    document_format::Documents,
    index_entry::{IndexEntry, IndexedSummary, StoppedApply},
    state_document::StateDocument,
};
use konverge_base::{
    error::chain,
    model::{
        CommitId, StackId, apply_result::StackResult, spec::RuntimeKind, state::Recorded,
        week_activity::WeekActivity,
    },
};

/// Maximum number of resources, and of images, that a summary names. The others are only counted.
const NAMED: usize = 2000;
/// Maximum length in bytes of an image that a summary names.
const LONGEST_IMAGE: usize = 512;
/// The prefix of an encrypted summary.
const SEALED: &str = "age:";
/// The fields of a pod that list containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The facts about a stack that an overview and a search show: names and images, but no other attribute
/// values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackSummary {
    /// The summarised stack.
    pub stack: StackId,
    /// The serial of the summarized state.
    pub serial: u64,
    /// The reason why that state was written.
    pub reason: WriteReason,
    /// The run that wrote the state.
    pub writer: DocumentWriter,
    /// The time of the write, by the writer's clock.
    pub written: Timestamp,
    /// The result of the apply, if an apply wrote the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<StackResult>,
    /// The commit of that apply. The index entry has the commit of the last successful one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted: Option<CommitId>,
    /// The activity of the last weeks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activity: Vec<WeekActivity>,
    /// The names of the resources by kind: `apps/v1:Deployment` has `shop:web`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Vec<String>>,
    /// The images of the containers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub images: BTreeSet<String>,
    /// The number of resources and images that are not named.
    #[serde(default, skip_serializing_if = "konverge_base::model::json_parts::is_default")]
    pub more: usize,
}

impl StackSummary {
    pub(super) fn from_document(
        document: &StateDocument,
        writer: &DocumentWriter,
        written: Timestamp,
    ) -> Self {
        let record = document.receipt.as_ref();
        let resources = &document.state.resources;
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in resources.iter().take(NAMED) {
            let (kind, name) = split_id(resource);
            names.entry(kind.to_owned()).or_default().push(name.to_owned());
        }
        let mut images = BTreeSet::new();
        for resource in resources {
            if resource.runtime == RuntimeKind::Kubernetes {
                resource
                    .attributes
                    .iter()
                    .for_each(|(key, value)| collect_images(key, value, &mut images));
            }
        }
        let found = images.len();
        let images: BTreeSet<_> = images
            .into_iter()
            .filter(|image| image.len() <= LONGEST_IMAGE)
            .take(NAMED)
            .collect();
        Self {
            stack: document.state.stack.clone(),
            serial: document.serial,
            reason: document.reason,
            writer: writer.clone(),
            written,
            result: record.map(|record| record.result),
            attempted: record.and_then(|record| record.commit.clone()),
            activity: document.activity.clone(),
            more: resources.len().saturating_sub(NAMED) + found - images.len(),
            names,
            images,
        }
    }
}

/// Splits the id of a resource into kind and name.
fn split_id(resource: &Recorded) -> (&str, &str) {
    let colons = match resource.runtime {
        RuntimeKind::Kubernetes => 2,
        RuntimeKind::Terraform => 3,
    };
    let id = resource.id.as_str();
    match id.match_indices(':').nth(colons - 1) {
        Some((at, _)) => (&id[..at], &id[at + 1..]),
        None => ("", id),
    }
}

fn collect_images(key: &str, value: &Value, images: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| collect_images(key, value, images)),
        Value::Array(items) => {
            if CONTAINERS.contains(&key) {
                let found = items
                    .iter()
                    .filter_map(|item| item.get("image").and_then(Value::as_str));
                images.extend(found.map(str::to_owned));
            }
            items.iter().for_each(|item| collect_images("", item, images));
        }
        _ => {}
    }
}

impl Documents {
    /// Returns the text of a summary for the index, encrypted if states are.
    pub(super) fn write_summary(&self, summary: &StackSummary) -> Result<IndexedSummary, StateError> {
        let json = serde_json::to_string(summary).expect("a summary has text keys");
        let text = match (&self.sealer, self.seal_documents) {
            (_, false) => json,
            (Some(sealer), true) => format!("{SEALED}{}", STANDARD.encode(sealer.seal(json.as_bytes())?)),
            (None, true) => {
                return Err(StateError::Sealed {
                    what: "a row of the index".to_owned(),
                    why: "this run has no key to encrypt it with".into(),
                });
            }
        };
        Ok(IndexedSummary::new(text))
    }

    /// Reads the summary in an index entry. `None` if there is none, or if it is unusable: of another stack,
    /// in a later format, encrypted to others, or not encrypted although states are.
    pub(super) fn read_summary(&self, stack: &StackId, entry: &IndexEntry) -> Option<StackSummary> {
        let text = entry.summary.as_ref()?.as_str();
        let summary: StackSummary = match text.strip_prefix(SEALED) {
            None if self.seal_documents && !self.accept_unmarked => return None,
            None => serde_json::from_str(text).ok()?,
            Some(cipher) => {
                let cipher = STANDARD.decode(cipher).ok()?;
                let plain = self.sealer.as_ref()?.open(&cipher).ok()?;
                serde_json::from_slice(&plain).ok()?
            }
        };
        (summary.stack == *stack && summary.serial <= entry.serial).then_some(summary)
    }
}

impl StateStore {
    /// Returns the summary of a document for its index entry. `None` on an error: the entry is valid without
    /// a summary.
    pub(super) fn summarize(
        &self,
        document: &StateDocument,
        writer: &DocumentWriter,
        written: Timestamp,
    ) -> Option<IndexedSummary> {
        let summary = StackSummary::from_document(document, writer, written);
        let written = self.envelopes.write_summary(&summary);
        written
            .inspect_err(
                |error| tracing::warn!(error = %chain(error), "a row of the index could not be encrypted"),
            )
            .ok()
    }

    /// Returns the summary in an index entry; `None` if it has none or an unusable one.
    pub fn summary(&self, stack: &StackId, entry: &IndexEntry) -> Option<StackSummary> {
        self.envelopes.read_summary(stack, entry)
    }

    /// Remembers that the apply of a stack ended without a new state. [`StateStore::save_index`] writes it.
    pub fn note_stopped_apply(&self, stack: &StackId, result: StackResult) {
        let stopped = StoppedApply {
            at: self.clock.wall_clock(),
            result,
            writer: self.envelopes.writer.clone(),
            epoch: self.finished().leased.get(stack).copied(),
        };
        self.finished().stopped.insert(stack.clone(), stopped);
    }

    /// Builds the summary of a stack from its newest state, for an index entry without one. One LIST and one
    /// GET.
    ///
    /// # Errors
    /// Errors of [`StateStore::load`].
    pub async fn read_stack_summary(&self, stack: &StackId) -> Result<Option<StackSummary>, StateError> {
        let reading = self.read(stack).await?;
        let document = reading.document.as_ref();
        Ok(document
            .map(|(header, document)| StackSummary::from_document(document, &header.writer, header.time)))
    }
}

#[cfg(test)]
#[path = "stack_summary_tests.rs"]
mod tests;
