//! The environment variables that Konverge reads: the page `docs/reference/environment.md`. A test finds each variable
//! of the code in this table.

/// The variables of Konverge, each with its meaning.
const OWN: &[(&str, &str)] = &[
    (
        "KONVERGE_AGE_IDENTITY",
        "age identities, one a line, or a passphrase: they decrypt states and encrypted files. Input `age-identity`",
    ),
    (
        "KONVERGE_APPROVE",
        "of `ci`: the digests of the plans that this run by hand approves. Input `approve`",
    ),
    (
        "KONVERGE_CACHE",
        "`off` reads and writes no cache of compiled Specs",
    ),
    (
        "KONVERGE_COMMENT",
        "of `ci`: when a comment is written: `always`, `changes` or `never`. Input `comment`",
    ),
    ("KONVERGE_COMPLETE", "set by the completion script of a shell"),
    (
        "KONVERGE_ENVIRONMENT",
        "of `ci`: the environment of the job, which GitHub does not expose to it. Input `environment`",
    ),
    (
        "KONVERGE_HTTP_PASSWORD",
        "with `KONVERGE_HTTP_USER`, the login at a Kusion state behind a URL",
    ),
    (
        "KONVERGE_HTTP_TOKEN",
        "the bearer token for a Kusion state behind a URL",
    ),
    ("KONVERGE_HTTP_USER", "see `KONVERGE_HTTP_PASSWORD`"),
    (
        "KONVERGE_KCL",
        "the KCL core to use in place of the one that the repository pins: a version, or a path to its library",
    ),
    (
        "KONVERGE_KUBECONFIG",
        "of `ci`: the text of a kubeconfig. Input `kubeconfig`",
    ),
    (
        "KONVERGE_LIVE",
        "of `ci`: whether live infrastructure is compared with: `auto`, `never` or `required`. Input `live`",
    ),
    (
        "KONVERGE_LOG",
        "which events are logged, as a filter of `tracing`: `konverge=debug`",
    ),
    (
        "KONVERGE_OCI_PASSWORD",
        "the password for `KONVERGE_OCI_REGISTRY`",
    ),
    (
        "KONVERGE_OCI_REGISTRY",
        "the registry that gets the credentials of the two variables beside it",
    ),
    ("KONVERGE_OCI_USERNAME", "the user for `KONVERGE_OCI_REGISTRY`"),
    ("KONVERGE_OFFLINE", "fetches nothing: no core and no package"),
    (
        "KONVERGE_PAGE_ARTIFACT",
        "of `ci`: the name of the artifact with the page, if a later step uploads it",
    ),
    (
        "KONVERGE_PAGE_URL",
        "of `ci`: the address of that artifact; the run then only links it in the summary and the comment",
    ),
    (
        "KONVERGE_REPO",
        "the folder of the repository, as `--repo`. Input `working-directory`",
    ),
    (
        "KONVERGE_REVIEW_KEY",
        "the key of the hashes that stand for secrets in plans, for jobs without the store. Input `review-key`",
    ),
    (
        "KONVERGE_SHARD",
        "of `ci`: the shard of a matrix job: `2/8`, or `all/8` for the job that joins them. Input `shard`",
    ),
    (
        "KONVERGE_SHARD_RESULT",
        "of `ci`: the result of the matrix, for the job that joins the shards. Input `shard-result`",
    ),
    (
        "KONVERGE_TRUSTED_ADDRESSES",
        "addresses that a command by hand may send credentials to although only the checkout's `konverge.yaml` has them",
    ),
];

/// The variables of others that Konverge reads by itself, each with what it is read for.
const OTHERS: &[(&str, &str)] = &[
    (
        "AWS_…, GOOGLE_…, AZURE_…, ALIBABA_CLOUD_…",
        "the credentials for stores, key services and secret stores, as the tools of these clouds read them",
    ),
    (
        "DOCKER_CONFIG",
        "the folder with the logins at registries of packages",
    ),
    (
        "GITHUB_…, ACTIONS_…, RUNNER_…, INPUT_…",
        "the job of GitHub Actions, set by its runner; `GITHUB_TOKEN` is the token to read and write with",
    ),
    ("HTTP_PROXY, HTTPS_PROXY, NO_PROXY", "the proxy for all requests"),
    (
        "KUBECONFIG",
        "the kubeconfig where `konverge.yaml` names a context alone",
    ),
    (
        "KUSION_HOME, KUSION_MODULE_PATH",
        "Kusion's folder, and the folder with the binaries of its modules",
    ),
    ("NO_COLOR", "no colors"),
    (
        "PIP_INDEX_URL",
        "the mirror of PyPI from which KCL cores are installed",
    ),
    ("SOPS_AGE_KEY", "age identities for files that SOPS encrypted"),
    ("TMPDIR", "the folder for temporary files"),
    (
        "VAULT_ADDR, VAULT_TOKEN, VAULT_NAMESPACE, VAULT_ROLE_ID, VAULT_SECRET_ID",
        "Vault's address and login",
    ),
    (
        "XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME",
        "the folders for caches, settings, KCL cores and files that a run could not store",
    ),
];

/// The page as Markdown.
pub fn page() -> String {
    let mut text = "# Environment variables\n\nGenerated from the program by `konverge __reference environment`. An option on the command line comes before its variable.\n\n## Of Konverge\n\n".to_owned();
    let table = |rows: &[(&str, &str)], text: &mut String| {
        text.push_str("| variable | meaning |\n|---|---|\n");
        for (names, meaning) in rows {
            let names: Vec<_> = names.split(", ").map(|name| format!("`{name}`")).collect();
            text.push_str(&format!("| {} | {meaning} |\n", names.join(", ")));
        }
    };
    table(OWN, &mut text);
    text.push_str("\n## Of others\n\n");
    table(OTHERS, &mut text);
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// The names of variables in a file: `KONVERGE_…`.
    fn names(text: &str, into: &mut BTreeSet<String>) {
        for (at, prefix) in text.match_indices("KONVERGE_") {
            let rest = &text[at + prefix.len()..];
            let end = rest
                .find(|c: char| !c.is_ascii_uppercase() && c != '_')
                .unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches('_');
            if !name.is_empty() {
                into.insert(format!("{prefix}{name}"));
            }
        }
    }

    fn collect(folder: &Path, into: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|end| end == "rs") {
                names(&fs::read_to_string(&path).unwrap(), into);
            }
        }
    }

    #[test]
    fn every_variable_of_the_code_is_in_the_reference() {
        // An older name that is kept from Terraform's processes, not one that is read.
        let ignored = ["KONVERGE_AGE_KEY"];
        let mut found = BTreeSet::new();
        for folder in ["src", "crates"] {
            collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
        }
        let listed: BTreeSet<_> = OWN.iter().map(|(name, _)| (*name).to_owned()).collect();
        found.retain(|name| !ignored.contains(&name.as_str()));
        assert_eq!(found, listed);
        let mut sorted: Vec<_> = OWN.iter().map(|(name, _)| *name).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, OWN.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
}
