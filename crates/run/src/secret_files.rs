//! The SOPS files that a stack may refer to: each is an input of the stack. A reference that KCL computes is unknown
//! before the stack is compiled, so all files that the rules of the store allow count.

use konverge_base::model::{
    RepoPath,
    digest::DigestBuilder,
    file_source::{BlobId, FileKind, Source},
    stack::Stack,
};
use konverge_config::{SecretStoreKind, SecretsConfig, StackGlob};
use konverge_repo::affected::WorkspaceInput;

/// The SOPS files that each rule of the stores allows, matched in the same way as a reference is checked.
pub(crate) struct SecretFiles(Vec<(StackGlob, Vec<(RepoPath, BlobId)>)>);

impl SecretFiles {
    /// Selects the SOPS files of a revision by the rules of the stores.
    pub(crate) fn select(config: &SecretsConfig, source: &dyn Source) -> Self {
        let stores = config.stores.values();
        let sops = stores.filter(|store| store.kind == SecretStoreKind::Sops);
        let rules = sops.flat_map(|store| &store.allow);
        let rules = rules.filter_map(|rule| {
            Some((
                StackGlob::compile(&rule.stacks)?,
                StackGlob::compile(&rule.paths)?,
            ))
        });
        Self(
            rules
                .map(|(stacks, paths)| {
                    let files = source.files().iter();
                    let files = files.filter(|(path, entry)| {
                        entry.kind == FileKind::File && paths.is_match(path.as_str())
                    });
                    let files = files.map(|(path, entry)| (path.clone(), entry.blob));
                    (stacks, files.collect())
                })
                .collect(),
        )
    }

    /// Adds the files that a stack may refer to as its inputs.
    pub(crate) fn added_to(&self, input: Option<WorkspaceInput>, stack: &Stack) -> Option<WorkspaceInput> {
        let folder = stack.folder.as_str();
        let rules = self.0.iter().filter(|(stacks, _)| stacks.is_match(folder));
        let mut files: Vec<_> = rules.flat_map(|(_, files)| files).collect();
        if files.is_empty() {
            return input;
        }
        files.sort_unstable();
        files.dedup();
        let mut digest = DigestBuilder::new("konverge secret files 1");
        if let Some(input) = &input {
            digest.part(input.digest.as_bytes());
        }
        for (path, blob) in &files {
            digest.part(path.as_str().as_bytes()).part(&blob.0);
        }
        Some(WorkspaceInput {
            files: input.map(|input| input.files).unwrap_or_default(),
            secret_files: files.into_iter().map(|(path, _)| path.clone()).collect(),
            digest: digest.finish(),
        })
    }
}
