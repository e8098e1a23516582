//! Parses `konverge.yaml`. Errors name the key, the line and the most similar known key.

use super::{Config, StackRule, types::DEFAULT_CORE};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{
        RepoPath,
        file_source::{Source, SourceError},
        stack::LayoutRules,
    },
    yaml::{self, YamlError},
};
use konverge_secrets::without_secrets;

/// The path of the file, at the root of the repository.
pub const FILE_NAME: &str = "konverge.yaml";

/// The error for an unusable `konverge.yaml`.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ConfigError {
    /// The file is not YAML, or does not have the expected form.
    #[error("{FILE_NAME}: {message}")]
    Invalid {
        /// The line, from 1.
        line: Option<u32>,
        /// The column, from 1.
        column: Option<u32>,
        message: String,
        /// The correct word that was probably meant.
        hint: Option<String>,
    },
    /// The file could not be read from the revision.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<ConfigError> for UserError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Invalid {
                line,
                column,
                message,
                hint,
            } => {
                let failure = UserError::new(ErrorKind::Config, message).at(FILE_NAME, line, column);
                let failure = hint.into_iter().fold(failure, UserError::hint);
                failure.hint("`konverge config schema` prints every key with its meaning")
            }
            ConfigError::Source(error) => {
                UserError::new(ErrorKind::Config, format!("{FILE_NAME}: {}", chain(&error)))
            }
        }
    }
}

/// Returns true if anything exists at a path: a link, a submodule or a folder.
fn file_exists(source: &dyn Source, path: &RepoPath) -> bool {
    let after = source
        .files()
        .range::<RepoPath, _>(path..)
        .map(|(found, _)| found);
    after
        .take_while(|found| found.as_str().starts_with(path.as_str()))
        .any(|found| found == path || found.is_within(path))
}

impl Config {
    /// Reads the file of a revision. A repository without the file gets the defaults.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(source: &dyn Source) -> Result<Self, ConfigError> {
        let path = RepoPath::root().child(FILE_NAME);
        match source.read_path(&path)? {
            Some(bytes) => Self::parse(&String::from_utf8_lossy(&bytes)),
            None if file_exists(source, &path) => Err(ConfigError::Invalid {
                line: None,
                column: None,
                message: "it is not a regular file, so it is not read".to_owned(),
                hint: Some("replace the link by the file itself: links are not followed".to_owned()),
            }),
            None => Ok(Self::default()),
        }
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text is not YAML, or it has an unknown key, a wrong type or a rule that contradicts itself.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if yaml::documents(text).map_err(invalid)?.is_empty() {
            return Ok(Self::default());
        }
        let config: Self = yaml::from_str(text).map_err(invalid)?;
        match config.problem() {
            None => Ok(config),
            Some((message, hint)) => Err(ConfigError::Invalid {
                line: None,
                column: None,
                message,
                hint: Some(hint),
            }),
        }
    }

    /// Returns this revision's configuration, but with everything that grants permissions from the default branch. A
    /// pull request's edit of those keys is shown, but has no effect. The keys that decide its stacks and Specs stay
    /// its own.
    #[must_use]
    pub fn with_power_from(&self, protected: &Config) -> Config {
        Config {
            version: self.version,
            ..protected.with_spec_keys_of(self)
        }
    }

    /// Returns the rules for reading the layout of a revision with this file.
    pub fn layout_rules(&self) -> LayoutRules {
        LayoutRules {
            order: self.kcl.settings,
            exclude: self.exclude.clone(),
            include: self.include.clone(),
            identities: self.by_pattern(|rule| &rule.identity),
        }
    }

    /// Returns what the rules of stacks that have this key say, each with its pattern.
    fn by_pattern<T: Clone>(&self, key: impl Fn(&StackRule) -> &Option<T>) -> Vec<(String, T)> {
        let rules = self.stacks.iter();
        let found = rules.filter_map(|rule| Some((rule.pattern.clone(), key(rule).clone()?)));
        found.collect()
    }

    /// Returns this configuration with the `exclude`, `include`, `stacks[].identity`, `stacks[].workspace`,
    /// `kcl.version` and `kcl.settings` of another revision, because these keys decide that revision's stacks, their
    /// identities and their Specs.
    #[must_use]
    pub fn with_spec_keys_of(&self, other: &Config) -> Config {
        let mut config = self.clone();
        config.kcl.version.clone_from(&other.kcl.version);
        config.kcl.settings = other.kcl.settings;
        config.exclude.clone_from(&other.exclude);
        config.include.clone_from(&other.include);
        let named = |config: &Self| {
            let identities = config.by_pattern(|rule| &rule.identity);
            (identities, config.by_pattern(|rule| &rule.workspace))
        };
        let of_other = named(other);
        if of_other == named(self) {
            return config;
        }
        let (identities, workspaces) = of_other;
        for rule in &mut config.stacks {
            rule.identity = None;
            rule.workspace = None;
        }
        // The rules are appended in their order, because the last rule that has a key wins.
        let named = identities.into_iter().map(|(pattern, identity)| StackRule {
            pattern,
            identity: Some(identity),
            ..StackRule::default()
        });
        config.stacks.extend(named);
        let with_workspace = workspaces.into_iter().map(|(pattern, workspace)| StackRule {
            pattern,
            workspace: Some(workspace),
            ..StackRule::default()
        });
        config.stacks.extend(with_workspace);
        config
    }

    /// Returns the default version of the core, for messages.
    pub const fn default_core() -> &'static str {
        DEFAULT_CORE
    }
}

/// Converts the parser's error. Its message is masked, because it may quote the text of the file.
fn invalid(error: YamlError) -> ConfigError {
    let hint = nearest(&error.message);
    ConfigError::Invalid {
        line: error.line,
        column: error.column,
        message: without_secrets(&error.message),
        hint,
    }
}

/// The keys of earlier versions, each with its current name.
const RENAMED: [(&str, &str); 5] = [
    ("stacks", "parallel_stacks"),
    ("resources", "parallel_resources"),
    ("stacks", "stacks_per_run"),
    ("max_delete", "max_destructive"),
    ("requests", "max_concurrent_requests"),
];

/// The values of earlier versions: the value, a value that is allowed in its place (to recognize the key in the error),
/// and a hint.
const REMOVED: [(&str, &str, &str); 2] = [
    (
        "cel",
        "gatekeeper",
        "rules in CEL are ValidatingAdmissionPolicies now: write `language: vap`, and each rule as a policy with a binding. Its `match` becomes `matchConstraints` and `matchConditions`, its `expression` one of `validations`, `severity: warn` becomes `validationActions: [Warn]`; `resource.after` is `object`, `resource.before` is `oldObject`. A rule on the whole plan becomes Rego. docs/guides/policy-as-code.md has an example",
    ),
    (
        "admission",
        "tfplan",
        "leave out `input`: with `language: vap` and `language: gatekeeper` the input is the requests that the apply would send",
    ),
];

/// Derives "did you mean `state`?" from "unknown key `statee`, expected one of state, stacks"; also for an
/// unknown value of an enum.
fn nearest(message: &str) -> Option<String> {
    let (_, rest) = ["unknown key `", "unknown value `"]
        .iter()
        .find_map(|start| message.split_once(start))?;
    let (given, expected) = rest.split_once('`')?;
    if let Some((_, new)) = RENAMED
        .iter()
        .find(|(old, new)| *old == given && expected.split(['`', ',', ' ']).any(|known| known == *new))
    {
        return Some(format!(
            "`{given}` is called `{new}` now: rename the key, its meaning is the same"
        ));
    }
    let names = |known: &str| expected.split(['`', ',', ' ']).any(|word| word == known);
    if let Some((.., now)) = REMOVED
        .iter()
        .find(|(old, beside, _)| *old == given && names(beside))
    {
        return Some((*now).to_owned());
    }
    expected
        .rsplit_once("expected one of ")
        .or_else(|| expected.rsplit_once("expected "))?
        .1
        .split(", ")
        .map(|known| known.trim_matches('`'))
        .map(|known| (strsim::damerau_levenshtein(given, known), known))
        .filter(|(distance, known)| *distance <= known.len().max(given.len()).div_ceil(2))
        .min()
        .map(|(_, known)| format!("did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        for text in ["", "# nothing\n", "---\n"] {
            assert_eq!(Config::parse(text).unwrap(), Config::default());
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest() {
        let failure = UserError::from(Config::parse("version: 1\nstate:\n  ulr: s3://x\n").unwrap_err());
        assert!(failure.message.contains("ulr"), "{failure:?}");
        assert_eq!(
            failure.location.as_ref().and_then(|l| l.line),
            Some(3),
            "{failure:?}"
        );
        assert!(failure.hints[0].contains("`url`"), "{failure:?}");
    }

    #[test]
    fn an_unknown_word_is_named_with_its_line_and_the_nearest() {
        let text = "notify:\n- kind: slack\n  url_env: CHAT\n  on: [apply-done, drfit]\n";
        let failure = UserError::from(Config::parse(text).unwrap_err());
        assert!(failure.message.contains("drfit"), "{failure:?}");
        assert_eq!(
            failure.location.as_ref().and_then(|l| l.line),
            Some(4),
            "{failure:?}"
        );
        assert!(failure.hints[0].contains("`drift`"), "{failure:?}");
        let failure = UserError::from(Config::parse("policy: {drift: restor}\n").unwrap_err());
        assert!(failure.hints[0].contains("`restore`"), "{failure:?}");
    }

    #[test]
    fn an_old_key_is_refused_with_its_new_name() {
        for (text, new) in [
            ("apply: {stacks: 2}", "`parallel_stacks`"),
            ("apply: {resources: 2}", "`parallel_resources`"),
            ("drift: {stacks: 2}", "`stacks_per_run`"),
            ("policy: {max_delete: 2}", "`max_destructive`"),
            (
                "stacks: [{match: a, policy: {max_delete: 2}}]",
                "`max_destructive`",
            ),
            ("clusters: {a: {requests: 2}}", "`max_concurrent_requests`"),
        ] {
            let failure = UserError::from(Config::parse(text).unwrap_err());
            assert!(
                failure.hints[0].contains(new) && failure.hints[0].contains("rename"),
                "{text}: {failure:?}"
            );
        }
    }

    #[test]
    fn a_rule_in_our_own_form_of_cel_is_refused_with_the_form_that_took_its_place() {
        for (set, words) in [
            ("language: cel", "`language: vap`"),
            ("language: vap, input: admission", "leave out `input`"),
        ] {
            let text = format!("policy:\n  sets:\n  - {{name: a, path: p, {set}}}\n");
            let failure = UserError::from(Config::parse(&text).unwrap_err());
            let line = failure.location.as_ref().and_then(|location| location.line);
            assert_eq!(line, Some(3), "{failure:?}");
            assert!(failure.hints[0].contains(words), "{failure:?}");
        }
    }

    #[test]
    fn drift_can_not_both_stop_and_be_put_back() {
        let both = "policy: {drift: stop}\ndrift: {reconcile: restore}\n";
        let error = Config::parse(both).unwrap_err();
        assert!(error.to_string().contains("drift.reconcile"), "{error}");
        assert!(Config::parse("drift: {reconcile: restore}\n").is_ok());
    }

    #[test]
    fn earlier_words_for_a_difference_mean_the_same() {
        for (earlier, now) in [
            ("drift: {reconcile: never}", "drift: {reconcile: leave}"),
            ("apply: {conflicts: take}", "apply: {conflicts: write}"),
            ("secrets: {rotation: follow}", "secrets: {rotation: write}"),
            ("secrets: {rotation: notify}", "secrets: {rotation: leave}"),
        ] {
            let read = Config::parse(earlier).unwrap();
            assert_eq!(read, Config::parse(now).unwrap(), "{earlier}");
            // What is printed and compared has the words of today.
            let (_, word) = now.split_once(": {").unwrap().1.split_once(": ").unwrap();
            let printed = serde_json::to_string(&read).unwrap();
            assert!(
                printed.contains(&format!("\"{}\"", word.trim_end_matches('}'))),
                "{printed}"
            );
        }
    }

    #[test]
    fn a_rule_must_name_a_known_cluster() {
        let error = Config::parse("stacks:\n- match: a/**\n  cluster: prod\n").unwrap_err();
        assert!(error.to_string().contains("prod"), "{error}");
        assert!(Config::parse("clusters:\n  prod: {}\nstacks:\n- match: a/**\n  cluster: prod\n").is_ok());
    }

    #[test]
    fn an_address_with_credentials_is_refused_and_not_shown() {
        for state in [
            "url: 'postgres://me:s3cret-pass@db/x'",
            "url: 'https://s3cret-pass@host/x'",
            "url: 's3://b?endpoint=http://me:s3cret-pass@127.0.0.1:9000'",
            "options: {endpoint: 'http://me:s3cret-pass@127.0.0.1:9000'}",
            "url: 7\n  options: 'http://me:s3cret-pass@127.0.0.1:9000'",
        ] {
            let failure = UserError::from(Config::parse(&format!("state:\n  {state}\n")).unwrap_err());
            assert!(!format!("{failure:?}").contains("s3cret"), "{failure:?}");
        }
        for state in [
            "url: 'postgres://me@db/x'",
            "url: 's3://b/a@b:c'",
            "url: /srv/me:x@y",
        ] {
            assert!(Config::parse(&format!("state: {{{state}}}\n")).is_ok(), "{state}");
        }
    }

    #[test]
    fn power_stays_with_the_protected_branch() {
        let protected = Config::parse("state: {url: 's3://good'}\nkcl: {sandbox: required}\n").unwrap();
        let change = Config::parse("state: {url: 's3://evil'}\nkcl: {sandbox: best-effort}\n").unwrap();
        let effective = change.with_power_from(&protected);
        assert_eq!(effective.state.url.as_deref(), Some("s3://good"));
        assert_eq!(effective.kcl, protected.kcl);
    }

    #[test]
    fn each_revision_has_its_own_core_and_reading_of_settings() {
        let protected = Config::parse("kcl: {version: 0.12.2, sandbox: required, workers: 2}\n").unwrap();
        let change =
            Config::parse("kcl: {version: 0.13.2, settings: v0.9.1, sandbox: best-effort}\n").unwrap();
        let effective = change.with_power_from(&protected);
        assert_eq!(effective.kcl.core(), "0.13.2");
        assert_eq!(effective.kcl.settings, change.kcl.settings);
        assert_eq!(effective.kcl.sandbox, protected.kcl.sandbox);
        assert_eq!(effective.kcl.workers, Some(2));
    }

    #[test]
    fn which_stacks_there_are_and_how_they_are_called_is_the_changes_own() {
        let protected = Config::parse(
            "clusters: {a: {}}\nexclude: [old]\nstacks: [{match: 'x/**', cluster: a, identity: x/y}]\n",
        );
        let change = Config::parse("exclude: [new]\nstacks: [{match: x/dev, identity: x/dev}]\n");
        let (protected, change) = (protected.unwrap(), change.unwrap());
        let effective = change.with_power_from(&protected);
        assert_eq!(effective.layout_rules(), change.layout_rules());
        assert_eq!(effective.stacks[0].cluster, protected.stacks[0].cluster);
        assert_eq!(effective.stacks[1].cluster, None);
        // Equal rules are not a difference.
        assert_eq!(protected.with_power_from(&protected), protected);
        assert!(Config::parse("exclude: ['a[']\n").is_err());
        assert!(Config::parse("stacks: [{match: a, identity: a}]\n").is_err());
    }
}
