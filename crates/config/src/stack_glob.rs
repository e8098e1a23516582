//! [`StackGlob`]: a compiled glob for folders, identities of stacks and other paths.

use globset::{Glob, GlobBuilder, GlobMatcher};

use super::config_problem::{Problem, problem};

/// A compiled glob: `*` does not match a slash, `**` does. A glob without wildcards is compared as text, because
/// compiling an automaton for each name of a long configuration would take seconds.
#[derive(Debug, Clone)]
pub enum StackGlob {
    /// A pattern without wildcards.
    Text(String),
    /// A pattern with wildcards.
    Glob(GlobMatcher),
}

/// Compiles the pattern of a glob for folders and identities.
pub(super) fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).build()
}

/// Returns the problem of a glob that is invalid, with a hint.
pub(super) fn glob_problem(key: &str, pattern: &str, hint: &str) -> Option<Problem> {
    let error = glob(pattern).err()?;
    let what = format!("{key}: `{}` is not a glob: {error}", pattern.escape_debug());
    problem(what).hint(hint)
}

impl StackGlob {
    /// Compiles a glob; `None` if it is invalid. An invalid glob matches nothing.
    pub fn compile(pattern: &str) -> Option<Self> {
        if !pattern.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            return Some(Self::Text(pattern.to_owned()));
        }
        Some(Self::Glob(glob(pattern).ok()?.compile_matcher()))
    }

    /// Returns true if the glob matches a folder or an identity.
    pub fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Text(own) => own == text,
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use konverge_base::model::RepoPath;

    /// As the reference says of `include`.
    #[test]
    fn the_root_is_matched_by_these_globs_of_rules_waves_and_the_portal() {
        let root = RepoPath::root();
        let id = "root/default".parse().unwrap();
        for (pattern, by_folder, by_identity) in [
            ("**", true, true),
            ("*", true, false),
            (".", false, false),
            ("./**", false, false),
            ("*/*", false, true),
            ("root/default", false, true),
            ("root/**", false, true),
        ] {
            let text = format!(
                "stacks: [{{match: '{pattern}', cluster: one, environment: e}}]\nclusters: {{one: {{}}}}\n\
                 rollouts: [{{name: all, waves: [{{match: '{pattern}'}}]}}]\n\
                 portal:\n  login: {{issuer: 'https://id.example', client_id: p, url: 'https://p.example'}}\n  \
                 roles: [{{groups: [a], role: viewer, match: '{pattern}'}}]\n"
            );
            let config = Config::parse(&text).unwrap();
            let rules = config.for_place(&id, &root);
            assert_eq!(
                rules.cluster.is_some(),
                by_folder || by_identity,
                "rule {pattern}"
            );
            // What grants something goes by the folder alone.
            assert_eq!(rules.environment.is_some(), by_folder, "environment {pattern}");
            let wave = config.rollout_matcher().wave_of(&root).unwrap().is_some();
            assert_eq!(wave, by_folder, "wave {pattern}");
            let portal = config.portal.grants_of_groups(&["a".to_owned()]);
            assert_eq!(portal.may_see(&root), by_folder, "portal {pattern}");
        }
    }

    /// Text is what the library would make of the same glob.
    #[test]
    fn a_glob_without_wildcards_matches_as_the_library_says() {
        let parts = [
            "", "a", "a/b", "a/b/", "/a", "A", "a.b", "a,b", "!a", "a b", "ä", "-", "a//b", "./a",
        ];
        for pattern in parts {
            assert!(matches!(StackGlob::compile(pattern), Some(StackGlob::Text(_))));
            let library = glob(pattern).unwrap().compile_matcher();
            for text in parts {
                let own = StackGlob::compile(pattern).unwrap();
                assert_eq!(own.is_match(text), library.is_match(text), "{pattern:?} {text:?}");
            }
        }
        for (pattern, text, is_match) in [
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("a/**", "a/b/c", true),
            ("a/{b,c}", "a/c", true),
            ("\\a", "a", true),
        ] {
            let glob = StackGlob::compile(pattern).unwrap();
            assert_eq!(glob.is_match(text), is_match, "{pattern} {text}");
        }
        assert!(StackGlob::compile("a[").is_none() && StackGlob::compile("a}").is_none());
    }
}
