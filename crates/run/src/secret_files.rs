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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{Files, stack};
    use konverge_config::Config;

    const RULES: &str = "version: 1\nsecrets:\n  stores:\n    \
        files: {kind: sops, allow: [{stacks: 'appops/shop/*', paths: 'secrets/shop/*'}, {stacks: '**', paths: 'secrets/all.yaml'}]}\n    \
        job: {kind: env, allow: [{stacks: '**', paths: '**'}]}\n";

    fn input(texts: &[(&str, &str)], name: &str) -> Option<WorkspaceInput> {
        let config = Config::parse(RULES).unwrap().secrets;
        SecretFiles::select(&config, &Files::new(texts)).added_to(None, &stack(name))
    }

    fn paths(input: &WorkspaceInput) -> Vec<&str> {
        input.secret_files.iter().map(RepoPath::as_str).collect()
    }

    #[test]
    fn the_inputs_of_a_stack_are_the_files_that_a_rule_of_a_sops_store_allows() {
        let texts = [
            ("secrets/all.yaml", "a"),
            ("secrets/shop/db.yaml", "b"),
            ("secrets/pay/db.yaml", "c"),
        ];
        let shop = input(&texts, "shop/prod").unwrap();
        assert_eq!(paths(&shop), ["secrets/all.yaml", "secrets/shop/db.yaml"]);
        assert_eq!(paths(&input(&texts, "pay/prod").unwrap()), ["secrets/all.yaml"]);
        assert!(
            input(&texts[1..], "pay/prod").is_none(),
            "another kind of store has no files"
        );
    }

    /// A changed secret is a change of the stack, and no other file is.
    #[test]
    fn the_digest_covers_the_content_and_the_path_of_each_file() {
        let digest = |texts: &[(&str, &str)]| input(texts, "shop/prod").unwrap().digest;
        let first = digest(&[("secrets/shop/db.yaml", "a")]);
        assert_eq!(
            digest(&[("secrets/shop/db.yaml", "a"), ("secrets/pay/db.yaml", "x")]),
            first
        );
        for other in [
            digest(&[("secrets/shop/db.yaml", "b")]),
            digest(&[("secrets/shop/other.yaml", "a")]),
            digest(&[("secrets/shop/db.yaml", "a"), ("secrets/all.yaml", "a")]),
        ] {
            assert_ne!(other, first);
        }
        let config = Config::parse(RULES).unwrap().secrets;
        let files = SecretFiles::select(&config, &Files::new(&[("secrets/shop/db.yaml", "a")]));
        let before = WorkspaceInput {
            files: Vec::new(),
            secret_files: Vec::new(),
            digest: konverge_base::model::Digest::of_bytes(b"workspace"),
        };
        let both = files.added_to(Some(before), &stack("shop/prod")).unwrap();
        assert_ne!(both.digest, first, "the workspace is a part of the inputs");
    }
}
