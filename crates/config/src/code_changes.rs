//! `set` in `konverge.yaml`: the repositories that may request an edit of the code, with the stacks and attributes that
//! they may edit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    config_problem::{Problem, problem},
    stack_glob::{StackGlob, glob_problem},
};
use konverge_base::model::RepoPath;

/// Edits of the code that other repositories ask for by `repository_dispatch`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Set")]
pub struct SetConfig {
    /// The edits that are allowed; everything else is refused.
    pub allow: Vec<SetRule>,
}

/// One rule of `set.allow`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRule {
    /// A glob for the folders of stacks: `appops/storefront/*`.
    pub stacks: String,
    /// The attributes, as `konverge set` prints them: `server.image`.
    pub paths: Vec<String>,
    /// The repositories that may ask, as `owner/name`.
    pub from: Vec<String>,
}

impl SetConfig {
    /// Returns true if a repository may set an attribute of the stack in a folder. `None` as the path stands for any
    /// attribute.
    pub fn allows(&self, repository: &str, folder: &RepoPath, path: Option<&str>) -> bool {
        let is_in = |glob: &str| StackGlob::compile(glob).is_some_and(|glob| glob.is_match(folder.as_str()));
        self.allow.iter().any(|rule| {
            // GitHub's names are case-insensitive.
            rule.from
                .iter()
                .any(|known| known.eq_ignore_ascii_case(repository))
                && is_in(&rule.stacks)
                && path.is_none_or(|path| rule.paths.iter().any(|known| known == path))
        })
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        self.allow.iter().find_map(|rule| {
            let wrong_glob = glob_problem("set.allow", &rule.stacks, "such as `appops/storefront/*`");
            if wrong_glob.is_some() {
                return wrong_glob;
            }
            if rule.paths.is_empty() || rule.from.is_empty() {
                let what = "set.allow: a rule without `paths` or `from` allows nothing".to_owned();
                return problem(what)
                    .hint("name attributes (`server.image`) and repositories (`owner/name`)");
            }
            let wrong = rule.from.iter().find(|name| !is_repository(name))?;
            let what = format!("set.allow: `{}` is not a repository", wrong.escape_debug());
            problem(what).hint("write `owner/name`; patterns are not supported here")
        })
    }
}

fn is_repository(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    name.split_once('/')
        .is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(stacks: &str, paths: &[&str], from: &[&str]) -> SetConfig {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let rule = SetRule {
            stacks: stacks.to_owned(),
            paths: owned(paths),
            from: owned(from),
        };
        SetConfig { allow: vec![rule] }
    }

    #[test]
    fn only_what_a_rule_names_is_allowed() {
        let rules = config("appops/shop/*", &["server.image"], &["acme/shop"]);
        let allows = |from: &str, folder: &str, path: &str| {
            rules.allows(from, &RepoPath::normalize(folder).unwrap(), Some(path))
        };
        assert!(allows("acme/shop", "appops/shop/dev", "server.image"));
        assert!(allows("Acme/Shop", "appops/shop/dev", "server.image"));
        for (from, folder, path) in [
            ("acme/shop2", "appops/shop/dev", "server.image"),
            ("evil/shop", "appops/shop/dev", "server.image"),
            ("acme/shop", "appops/shop/dev/x", "server.image"),
            ("acme/shop", "appops/other/dev", "server.image"),
            ("acme/shop", "appops/shop/dev", "server.replicas"),
            ("acme/shop", "appops/shop/dev", "server.image.x"),
        ] {
            assert!(!allows(from, folder, path), "{from} {folder} {path}");
        }
        assert!(!SetConfig::default().allows("acme/shop", &RepoPath::root(), None));
    }

    #[test]
    fn wrong_rules_are_named() {
        for rules in [
            config("a[", &["a.b"], &["a/b"]),
            config("a/*", &[], &["a/b"]),
            config("a/*", &["a.b"], &[]),
            config("a/*", &["a.b"], &["a/*"]),
            config("a/*", &["a.b"], &["a"]),
            config("a/*", &["a.b"], &["a/b/c"]),
        ] {
            assert!(
                rules
                    .problem()
                    .is_some_and(|(what, _)| what.starts_with("set.allow")),
                "{rules:?}"
            );
        }
        assert_eq!(config("a/*", &["a.b"], &["a/b"]).problem(), None);
    }
}
