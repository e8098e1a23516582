//! Checks `policy.sets` and `policy.exceptions`.

use std::collections::BTreeSet;

use super::types::{PolicyConfig, PolicyEnforcement, PolicyLanguage};
use konverge_base::model::RepoPath;

impl PolicyConfig {
    /// Returns the first problem of the sets and exceptions, with a hint.
    pub(super) fn sets_problem(&self) -> Option<(String, String)> {
        let (message, hint) = self.set_problem().or_else(|| self.exception_problem())?;
        Some((message, hint.to_owned()))
    }

    fn set_problem(&self) -> Option<(String, &'static str)> {
        let mut names = BTreeSet::new();
        for set in &self.sets {
            let name = set.name.escape_debug();
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if set.name.is_empty() || !set.name.chars().all(is_word) {
                return Some((
                    format!("policy.sets: `{name}` is not a name"),
                    "use letters, digits, `-`, `_` and `.`",
                ));
            }
            if !names.insert(&set.name) {
                return Some((
                    format!("policy.sets: two sets are called `{name}`"),
                    "give each set its own name: overrides and exceptions name it",
                ));
            }
            let paths = std::iter::once(&set.path).chain(&set.data);
            for path in paths {
                if RepoPath::normalize(path).is_none_or(|path| path.is_root()) {
                    return Some((
                        format!(
                            "policy.sets: `{}` of set `{name}` is not a path of the repository",
                            path.escape_debug()
                        ),
                        "write the path from the root, such as `ops/policy`",
                    ));
                }
            }
            if let Some(glob) = &set.stacks
                && let Err(error) = globset::Glob::new(glob)
            {
                return Some((
                    format!("policy.sets: `{}` is not a glob: {error}", glob.escape_debug()),
                    "write `appops/*/prod`",
                ));
            }
            for glob in &set.packages {
                if let Err(error) = globset::Glob::new(glob) {
                    return Some((
                        format!("policy.sets: `{}` is not a glob: {error}", glob.escape_debug()),
                        "write packages such as `main` or `kubernetes.*`",
                    ));
                }
            }
            let named = set.overriders.as_ref().map(|named| !named.by.is_empty());
            match (set.enforcement(), named) {
                (PolicyEnforcement::Override, Some(true)) => {}
                (PolicyEnforcement::Override, _) | (_, Some(false)) => {
                    return Some((
                        format!("policy.sets: set `{name}` names no person who may override a finding"),
                        "write `override: {by: [org/team]}`",
                    ));
                }
                (_, Some(true)) => {
                    return Some((
                        format!(
                            "policy.sets: set `{name}` names who may override it, but its `enforce` allows no override"
                        ),
                        "leave out `enforce`, or `override`",
                    ));
                }
                (_, None) => {}
            }
            if set.language != PolicyLanguage::Rego && set.input.is_some() {
                return Some((
                    format!("policy.sets: set `{name}` has an `input`, which only rules in Rego have"),
                    "leave out `input`: ValidatingAdmissionPolicies and Gatekeeper's constraints get the requests that the apply would send",
                ));
            }
        }
        None
    }

    fn exception_problem(&self) -> Option<(String, &'static str)> {
        for exception in &self.exceptions {
            if !self.sets.iter().any(|set| set.name == exception.set) {
                return Some((
                    format!(
                        "policy.exceptions: no set is called `{}`",
                        exception.set.escape_debug()
                    ),
                    "name a set of `policy.sets`",
                ));
            }
            let globs = std::iter::once(&exception.resource).chain(&exception.stacks);
            for glob in globs {
                if let Err(error) = globset::Glob::new(glob) {
                    return Some((
                        format!(
                            "policy.exceptions: `{}` is not a glob: {error}",
                            glob.escape_debug()
                        ),
                        "write the id of a resource, such as `apps/v1:Deployment:legacy:*`",
                    ));
                }
            }
            if let Err(error) = exception.until_moment() {
                return Some((
                    format!(
                        "policy.exceptions: `{}` is not a date: {error}",
                        exception.until.escape_debug()
                    ),
                    "write `until: 2027-01-31`",
                ));
            }
            if exception.reason.trim().is_empty() {
                return Some((
                    format!(
                        "policy.exceptions: the exception for `{}` has no reason",
                        exception.resource.escape_debug()
                    ),
                    "write the reason: the preview shows it",
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn problem(policy: &str) -> String {
        match Config::parse(&format!("policy: {policy}\n")) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_set_or_exception_that_means_nothing_is_refused() {
        assert_eq!(problem("{sets: [{name: a, path: ops/policy}]}"), "");
        for (policy, word) in [
            ("{sets: [{name: a b, path: p}]}", "not a name"),
            ("{sets: [{name: a, path: p}, {name: a, path: q}]}", "two sets"),
            ("{sets: [{name: a, path: ../p}]}", "not a path"),
            ("{sets: [{name: a, path: /}]}", "not a path"),
            ("{sets: [{name: a, path: p, stacks: 'a['}]}", "not a glob"),
            ("{sets: [{name: a, path: p, packages: ['a[']}]}", "not a glob"),
            ("{sets: [{name: a, path: p, language: vap}]}", ""),
            ("{sets: [{name: a, path: p, language: gatekeeper}]}", ""),
            (
                "{sets: [{name: a, path: p, language: vap, input: plan}]}",
                "only rules in Rego",
            ),
            (
                "{sets: [{name: a, path: p, language: gatekeeper, input: objects}]}",
                "only rules in Rego",
            ),
            ("{sets: [{name: a, path: p, enforce: sometimes}]}", "sometimes"),
            (
                "{sets: [{name: a, path: p, enforce: override}]}",
                "names no person",
            ),
            (
                "{sets: [{name: a, path: p, override: {by: []}}]}",
                "names no person",
            ),
            (
                "{sets: [{name: a, path: p, enforce: always, override: {by: [a/b]}}]}",
                "allows no override",
            ),
            (
                "{sets: [{name: a, path: p, enforce: advise, override: {by: [a/b]}}]}",
                "allows no override",
            ),
            (
                "{sets: [{name: a, path: p, enforce: override, override: {by: [a/b]}}, {name: b, path: p, override: {by: [c]}}]}",
                "",
            ),
            (
                "{exceptions: [{set: a, resource: x, until: 2027-01-01, reason: r}]}",
                "no set",
            ),
            (
                "{sets: [{name: a, path: p}], exceptions: [{set: a, resource: x, until: soon, reason: r}]}",
                "not a date",
            ),
            (
                "{sets: [{name: a, path: p}], exceptions: [{set: a, resource: x, until: 2027-01-01, reason: ' '}]}",
                "no reason",
            ),
        ] {
            let said = problem(policy);
            assert!(said.contains(word), "{policy}: {said}");
        }
    }
}
