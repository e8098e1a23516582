//! User-defined readiness rules: a folder of scripts with the layout of Argo CD's `resource_customizations`.
//!
//! `<group>/<Kind>/health.lua` (the core group has no folder: `Pod/health.lua`) is an Argo CD script,
//! `<group>/<Kind>/health.cel.yaml` contains CEL expressions (`inProgress`, `failed`, `current`), and
//! `<group>/<Kind>/health.k` assertions in KCL. In both folder names `_` matches any text. The most specific
//! folder wins: the fewest `_`, then the first by name.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::Value;

use super::{
    cel::Expressions,
    kcl::{self, AssertionResult},
    verdict::{HealthVerdict, WaitPolicy},
};
use crate::FIELD_MANAGER;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{GroupKind, health::HealthReport},
};

const LUA_FILE: &str = "health.lua";
const CEL_FILE: &str = "health.cel.yaml";
const KCL_FILE: &str = "health.k";
/// The maximum size of a script in bytes.
const LARGEST: usize = 256 * 1024;

/// Errors in a folder of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum RulesError {
    /// The folder or a file in it cannot be read.
    #[error("{path}: {why}")]
    Unreadable {
        path: String,
        /// The message of the system.
        why: String,
    },
    /// An invalid rule.
    #[error("{message}")]
    Invalid {
        path: String,
        /// The line, from 1, if the parser reports one.
        line: Option<u32>,
        message: String,
    },
    /// Two rules have the same folder.
    #[error("{folder} contains more than one rule")]
    Ambiguous { folder: String },
}

impl From<RulesError> for UserError {
    fn from(error: RulesError) -> Self {
        let failure = Self::new(ErrorKind::Config, error.to_string());
        match error {
            RulesError::Unreadable { path, .. } => failure.hint(format!(
                "name a folder with `<group>/<Kind>/{LUA_FILE}` in it; `{path}` is not one"
            )),
            RulesError::Invalid { path, line, .. } => failure.at(path, line, None),
            RulesError::Ambiguous { folder } => failure.hint(format!(
                "keep only one of {LUA_FILE}, {CEL_FILE} and {KCL_FILE} in `{folder}`"
            )),
        }
    }
}

/// Runs rules that need a process of their own. An error, in one sentence, is the fault of the rule or of its
/// process, not of the object.
#[async_trait]
pub trait Evaluate: Send + Sync + Debug {
    /// Runs a rule in KCL on an object. The program gets the object as `option("object")` and as `res`.
    async fn run_kcl(&self, path: &str, code: &str, object: &Value) -> Result<AssertionResult, String>;

    /// Runs a Lua script on an object, in a process that is killed if the script takes too long.
    async fn run_lua(&self, script: &str, object: &Value) -> Result<Option<HealthReport>, String>;
}

#[derive(Debug)]
enum Code {
    Lua(String),
    Cel(Box<Expressions>),
    Kcl(String),
}

#[derive(Debug)]
struct HealthRule {
    /// The folder, in which `_` matches any text.
    pattern: String,
    /// The name of the file, for messages.
    path: String,
    code: Code,
}

/// The rules of one folder; empty by default. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HealthRules {
    /// The rules, the most specific first.
    rules: Arc<[HealthRule]>,
    /// The rule of one object's `healthPolicy`. It is used if no other rule applies.
    own: Option<Arc<HealthRule>>,
    /// Runs the rules in KCL and in Lua.
    evaluator: Option<Arc<dyn Evaluate>>,
    /// The field manager that applies the Spec. An object that this manager pauses does not wait for
    /// promotion.
    field_manager: &'static str,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            rules: Arc::default(),
            own: None,
            evaluator: None,
            field_manager: FIELD_MANAGER,
        }
    }
}

impl HealthRules {
    /// Reads a folder. Other files in it (tests, actions) are ignored.
    ///
    /// # Errors
    /// The folder cannot be read, or a rule is invalid.
    pub fn load(folder: &Path) -> Result<Self, RulesError> {
        let unreadable = |path: &Path, error: std::io::Error| RulesError::Unreadable {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        let mut files = Vec::new();
        let mut folders = vec![(folder.to_path_buf(), 0)];
        while let Some((current, depth)) = folders.pop() {
            let entries = std::fs::read_dir(&current).map_err(|error| unreadable(&current, error))?;
            for entry in entries {
                let path = entry.map_err(|error| unreadable(&current, error))?.path();
                if path.is_dir() && depth < 2 {
                    folders.push((path, depth + 1));
                } else if depth > 0 && is_rule(&path) {
                    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
                    let relative = path.strip_prefix(folder).map(PathBuf::from);
                    files.push((
                        relative.unwrap_or_else(|_| path.clone()),
                        path.display().to_string(),
                        text,
                    ));
                }
            }
        }
        Self::from_files(files)
    }

    /// Builds the rules from files that were read elsewhere, such as from the default branch. Each file has
    /// its path in the folder, its name for messages, and its text.
    ///
    /// # Errors
    /// A rule is invalid.
    pub fn from_files(
        files: impl IntoIterator<Item = (PathBuf, String, String)>,
    ) -> Result<Self, RulesError> {
        let mut by_folder = BTreeMap::new();
        for (relative, path, text) in files.into_iter().filter(|(relative, ..)| is_rule(relative)) {
            if text.len() > LARGEST {
                return Err(RulesError::Invalid {
                    message: format!("a rule may have at most {LARGEST} bytes, this has {}", text.len()),
                    path,
                    line: None,
                });
            }
            let pattern = relative.parent().unwrap_or(Path::new("")).display().to_string();
            let code = if relative.ends_with(CEL_FILE) {
                let parsed = Expressions::parse(&text).map_err(|error| RulesError::Invalid {
                    path: path.clone(),
                    line: error.line,
                    message: error.message,
                })?;
                Code::Cel(Box::new(parsed))
            } else if relative.ends_with(KCL_FILE) {
                Code::Kcl(text)
            } else {
                Code::Lua(text)
            };
            let rule = HealthRule {
                pattern: pattern.clone(),
                path,
                code,
            };
            if let Some(HealthRule { path, .. }) = by_folder.insert(pattern, rule) {
                let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
                return Err(RulesError::Ambiguous {
                    folder: folder.display().to_string(),
                });
            }
        }
        let mut rules: Vec<_> = by_folder.into_values().collect();
        rules.sort_by_key(|rule| rule.pattern.matches('_').count());
        Ok(Self {
            rules: rules.into(),
            ..Self::default()
        })
    }

    /// Sets the evaluator of rules in KCL and in Lua.
    #[must_use]
    pub fn with_evaluator(self, evaluator: Arc<dyn Evaluate>) -> Self {
        Self {
            evaluator: Some(evaluator),
            ..self
        }
    }

    /// Returns the same rules for objects whose Spec another field manager applies.
    #[must_use]
    pub(crate) fn with_field_manager(self, field_manager: &'static str) -> Self {
        Self {
            field_manager,
            ..self
        }
    }

    pub(super) fn field_manager(&self) -> &'static str {
        self.field_manager
    }

    /// Adds the rule of one object's `healthPolicy` of Kusion: assertions in KCL, and their name for
    /// messages.
    #[must_use]
    pub fn with_policy(&self, name: &str, code: &str) -> Self {
        let rule = HealthRule {
            pattern: String::new(),
            path: name.to_owned(),
            code: Code::Kcl(code.to_owned()),
        };
        Self {
            own: Some(Arc::new(rule)),
            ..self.clone()
        }
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns true if there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn find(&self, GroupKind { group, kind }: GroupKind<'_>) -> Option<&HealthRule> {
        let key = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{group}/{kind}")
        };
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| matches(&rule.pattern, &key));
        rule.or(self.own.as_deref())
    }

    /// Returns the verdict of the rule for that kind; `None` if there is no rule, or if it gives no result. A
    /// rule that fails gives the verdict `unknown`, with its file and the reason.
    pub(super) async fn evaluate(&self, of: GroupKind<'_>, object: &Value) -> Option<HealthVerdict> {
        let rule = self.find(of)?;
        let verdict = match (&rule.code, &self.evaluator) {
            (Code::Cel(expressions), _) => expressions.evaluate(object).map(Some),
            (Code::Kcl(code), Some(evaluator)) => evaluator
                .run_kcl(&rule.path, code, object)
                .await
                .and_then(|result| kcl::verdict(&result).map(Some)),
            (Code::Lua(script), Some(evaluator)) => evaluator
                .run_lua(script, object)
                .await
                .map(|report| report.map(reported)),
            (Code::Kcl(_) | Code::Lua(_), None) => Err("this run cannot run KCL or Lua".to_owned()),
        };
        verdict.unwrap_or_else(|why| Some(HealthVerdict::unknown(format!("{}: {why}", rule.path))))
    }
}

/// Converts a script's result. Scripts return Degraded even while a resource recovers, so a failure counts
/// only after it has lasted.
fn reported(report: HealthReport) -> HealthVerdict {
    HealthVerdict::new(report.health, report.message).with_wait_policy(WaitPolicy::Blocked)
}

fn is_rule(path: &Path) -> bool {
    [LUA_FILE, CEL_FILE, KCL_FILE]
        .iter()
        .any(|name| path.ends_with(name))
}

/// Returns true if a folder name, with `_` for any text within one component, matches `group/Kind`.
fn matches(pattern: &str, key: &str) -> bool {
    let (patterns, keys) = (pattern.split('/'), key.split('/'));
    patterns.clone().count() == keys.clone().count()
        && patterns
            .zip(keys)
            .all(|(pattern, name)| matches_name(pattern, name))
}

fn matches_name(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('_') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<_> = rest.split('_').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Health, Related, assess, tests::InProcess};
    use serde_json::json;

    fn rules(files: &[(&str, &str)]) -> Result<HealthRules, RulesError> {
        HealthRules::from_files(
            files
                .iter()
                .map(|(path, text)| (PathBuf::from(path), format!("rules/{path}"), (*text).to_owned())),
        )
    }

    fn saying(message: &str) -> String {
        format!("return {{status = 'Healthy', message = '{message}'}}")
    }

    #[test]
    fn folders_with_underscores_match_any_text() {
        for (pattern, key, expected) in [
            ("_.crossplane.io/_", "pkg.crossplane.io/Provider", true),
            ("_.crossplane.io/_", "a.b.crossplane.io/Provider", true),
            ("_.crossplane.io/_", "crossplane.io/Provider", false),
            ("_/_", "apps/Deployment", true),
            ("_/_", "Pod", false),
            ("_", "Pod", true),
            ("apps/Deployment", "apps/Deployment", true),
            ("apps/Deployment", "apps/DeploymentX", false),
            ("apps/_Set", "apps/DaemonSet", true),
            ("apps/_Set", "apps/Deployment", false),
            ("a_b_c/K", "a1b2b3c/K", true),
            ("a_b_c/K", "ab/K", false),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern} {key}");
        }
    }

    #[tokio::test]
    async fn the_most_exact_folder_wins() {
        let rules = rules(&[
            ("_/_/health.lua", &saying("anything")),
            ("_.example.com/_/health.lua", &saying("wild")),
            ("db.example.com/_/health.lua", &saying("group")),
            ("db.example.com/Table/health.lua", &saying("exact")),
            ("Pod/health.lua", &saying("core")),
            (
                "db.example.com/Table/actions/discovery.lua",
                "error('not a health rule')",
            ),
        ])
        .unwrap()
        .with_evaluator(Arc::new(InProcess));
        assert_eq!(rules.len(), 5);
        for (api_version, kind, expected) in [
            ("db.example.com/v1", "Table", "exact"),
            ("db.example.com/v1", "Index", "group"),
            ("mq.example.com/v1", "Queue", "wild"),
            ("apps/v1", "Deployment", "anything"),
            ("v1", "Pod", "core"),
        ] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
            let verdict = assess(&object, &Related::default(), &rules).await;
            assert_eq!(verdict.message, expected, "{api_version} {kind}");
        }
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"type": "LoadBalancer"}});
        assert_eq!(
            assess(&service, &Related::default(), &rules).await.health,
            Health::Progressing,
            "no rule for it"
        );
    }

    #[tokio::test]
    async fn a_rule_that_nothing_runs_is_unknown() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Succeeded"}});
        let rules = rules(&[("Pod/health.lua", &saying("core"))]).unwrap();
        let verdict = assess(&object, &Related::default(), &rules).await;
        assert_eq!(
            (verdict.health, verdict.message.as_str()),
            (
                Health::Unknown,
                "rules/Pod/health.lua: this run cannot run KCL or Lua"
            )
        );
    }

    #[test]
    fn two_rules_in_one_folder_are_refused() {
        let error = rules(&[
            ("apps/Deployment/health.lua", &saying("a")),
            ("apps/Deployment/health.cel.yaml", "current: 'true'\n"),
        ])
        .unwrap_err();
        assert!(
            matches!(error, RulesError::Ambiguous { ref folder } if folder == "rules/apps/Deployment"),
            "{error:?}"
        );
    }

    #[test]
    fn a_malformed_expression_is_refused_with_its_place() {
        let error = rules(&[(
            "apps/Deployment/health.cel.yaml",
            "current: 'true'\nfailed: 'a +'\n",
        )])
        .unwrap_err();
        let failure = UserError::from(error);
        let location = failure.location.unwrap();
        assert_eq!(
            (location.file.as_str(), location.line),
            ("rules/apps/Deployment/health.cel.yaml", Some(2))
        );
    }

    #[test]
    fn a_folder_is_read_and_a_missing_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let kind = folder.path().join("db.example.com/Table");
        std::fs::create_dir_all(kind.join("testdata")).unwrap();
        std::fs::write(kind.join("health.lua"), saying("read")).unwrap();
        std::fs::write(kind.join("testdata/health.lua"), "too deep").unwrap();
        assert_eq!(HealthRules::load(folder.path()).unwrap().len(), 1);
        let missing = HealthRules::load(&folder.path().join("nowhere"));
        assert!(
            matches!(missing, Err(RulesError::Unreadable { .. })),
            "{missing:?}"
        );
    }
}
