//! Checks `policy.sets` and `policy.exceptions`.

use std::collections::BTreeSet;

use super::{
    config_problem::{Problem, problem},
    stack_glob::glob_problem,
    types::{PolicyConfig, PolicyEnforcement, PolicyLanguage},
};
use konverge_base::model::RepoPath;

impl PolicyConfig {
    /// Returns the first problem of the sets and exceptions, with a hint.
    pub(super) fn sets_problem(&self) -> Option<Problem> {
        self.set_problem().or_else(|| self.exception_problem())
    }

    fn set_problem(&self) -> Option<Problem> {
        let mut names = BTreeSet::new();
        for set in &self.sets {
            let name = set.name.escape_debug();
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if set.name.is_empty() || !set.name.chars().all(is_word) {
                return problem(format!("policy.sets: `{name}` is not a name"))
                    .hint("use letters, digits, `-`, `_` and `.`");
            }
            if !names.insert(&set.name) {
                return problem(format!("policy.sets: two sets are called `{name}`"))
                    .hint("give each set its own name: overrides and exceptions name it");
            }
            let paths = std::iter::once(&set.path).chain(&set.data);
            for path in paths {
                if RepoPath::normalize(path).is_none_or(|path| path.is_root()) {
                    return problem(format!(
                        "policy.sets: `{}` of set `{name}` is not a path of the repository",
                        path.escape_debug()
                    ))
                    .hint("write the path from the root, such as `ops/policy`");
                }
            }
            let stacks = set.stacks.iter().map(|glob| (glob, "write `appops/*/prod`"));
            let packages = set.packages.iter();
            let packages = packages.map(|glob| (glob, "write packages such as `main` or `kubernetes.*`"));
            let mut globs = stacks.chain(packages);
            let wrong_glob = globs.find_map(|(glob, hint)| glob_problem("policy.sets", glob, hint));
            if wrong_glob.is_some() {
                return wrong_glob;
            }
            let named = set.overriders.as_ref().map(|named| !named.by.is_empty());
            match (set.enforcement(), named) {
                (PolicyEnforcement::Override, Some(true)) => {}
                (PolicyEnforcement::Override, _) | (_, Some(false)) => {
                    return problem(format!(
                        "policy.sets: set `{name}` names no person who may override a finding"
                    ))
                    .hint("write `override: {by: [org/team]}`");
                }
                (_, Some(true)) => {
                    return problem(format!(
                        "policy.sets: set `{name}` names who may override it, but its `enforce` allows no override"
                    ))
                    .hint("leave out `enforce`, or `override`");
                }
                (_, None) => {}
            }
            if set.language != PolicyLanguage::Rego && set.input.is_some() {
                let hint = "leave out `input`: ValidatingAdmissionPolicies and Gatekeeper's constraints get the requests that the apply would send";
                return problem(format!(
                    "policy.sets: set `{name}` has an `input`, which only rules in Rego have"
                ))
                .hint(hint);
            }
        }
        None
    }

    fn exception_problem(&self) -> Option<Problem> {
        for exception in &self.exceptions {
            if !self.sets.iter().any(|set| set.name == exception.set) {
                return problem(format!(
                    "policy.exceptions: no set is called `{}`",
                    exception.set.escape_debug()
                ))
                .hint("name a set of `policy.sets`");
            }
            let hint = "write the id of a resource, such as `apps/v1:Deployment:legacy:*`";
            let mut globs = std::iter::once(&exception.resource).chain(&exception.stacks);
            let wrong_glob = globs.find_map(|glob| glob_problem("policy.exceptions", glob, hint));
            if wrong_glob.is_some() {
                return wrong_glob;
            }
            if let Err(error) = exception.until_moment() {
                return problem(format!(
                    "policy.exceptions: `{}` is not a date: {error}",
                    exception.until.escape_debug()
                ))
                .hint("write `until: 2027-01-31`");
            }
            if exception.reason.trim().is_empty() {
                return problem(format!(
                    "policy.exceptions: the exception for `{}` has no reason",
                    exception.resource.escape_debug()
                ))
                .hint("write the reason: the preview shows it");
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
