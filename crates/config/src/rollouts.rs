//! `rollouts` and `gates` in `konverge.yaml`: the waves in which a change reaches its stacks, and the conditions for
//! the next wave.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Span,
    config_problem::{Problem, problem},
    stack_glob::glob_problem,
};
use konverge_base::model::Digest;
use konverge_cel::cel_expression::CelExpression;

/// The maximum length of a rollout's name, which is part of keys in the store.
const LONGEST_NAME: usize = 63;
/// The maximum number of waves in a rollout.
const MOST_WAVES: usize = 100;

/// The default deadline of a gate.
const DEADLINE: Span = Span::seconds(3600);

/// A change goes to the stacks of one wave, then to those of the next. A stack belongs to its first matching wave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Rollout")]
pub struct RolloutConfig {
    /// The name, unique in the file: lower-case letters, digits and `-`.
    pub name: String,
    /// The waves, the first one first.
    pub waves: Vec<WaveConfig>,
    /// The reaction to a wave that fails. Default: `stop`.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// The stacks that a change reaches together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Wave")]
pub struct WaveConfig {
    /// A glob for the folders of stacks: `appops/*/prod-eu-*`. An identity is not matched: a pull request chooses it.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The number or the share (such as `25%`) of stacks of the wave that are applied at once. The next stacks follow
    /// when these are ready. Default: all.
    #[serde(default)]
    pub at_once: Option<AtOnce>,
    /// The time for which the stacks of the wave must stay ready before the gates are asked. Default: no time.
    #[serde(default)]
    pub bake: Option<Span>,
    /// The gates that must pass before the next wave: names under `gates`.
    #[serde(default)]
    pub gates: Vec<String>,
}

/// The reaction to a wave that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The rollout stops, and its stacks are not changed.
    #[default]
    Stop,
    /// The rollout stops, and the stacks of the wave get what they had before.
    Rollback,
}

/// A number of stacks, or a share of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "AtOnceForm", into = "AtOnceForm")]
#[schemars(with = "AtOnceForm", inline)]
pub enum AtOnce {
    /// A number of stacks.
    Stacks(u32),
    /// A percentage of the stacks of the wave, but at least one stack.
    Percent(u32),
}

/// The value of `at_once` is not a number of stacks and not a share.
#[derive(Debug, thiserror::Error)]
#[error("at_once: `{0}` is not a number of stacks from 1, nor a share from `1%` to `100%`")]
pub struct InvalidAtOnce(String);

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum AtOnceForm {
    Stacks(u32),
    Share(String),
}

impl TryFrom<AtOnceForm> for AtOnce {
    type Error = InvalidAtOnce;

    fn try_from(form: AtOnceForm) -> Result<Self, InvalidAtOnce> {
        let wrong = |given: &str| InvalidAtOnce(given.escape_debug().to_string());
        match form {
            AtOnceForm::Stacks(0) => Err(wrong("0")),
            AtOnceForm::Stacks(count) => Ok(Self::Stacks(count)),
            AtOnceForm::Share(text) => {
                let digits = text.strip_suffix('%').filter(|digits| digits.len() <= 3);
                let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                let percent = digits.and_then(|digits| digits.parse().ok());
                match percent.filter(|percent| (1..=100).contains(percent)) {
                    Some(percent) => Ok(Self::Percent(percent)),
                    None => Err(wrong(&text)),
                }
            }
        }
    }
}

impl From<AtOnce> for AtOnceForm {
    fn from(at_once: AtOnce) -> Self {
        match at_once {
            AtOnce::Stacks(count) => Self::Stacks(count),
            AtOnce::Percent(percent) => Self::Share(format!("{percent}%")),
        }
    }
}

impl std::fmt::Display for AtOnce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stacks(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

impl AtOnce {
    /// Returns the number of stacks at once in a wave of this size; at least one.
    pub fn of(self, size: usize) -> usize {
        match self {
            Self::Stacks(count) => count as usize,
            Self::Percent(percent) => (size * percent as usize).div_ceil(100),
        }
        .max(1)
    }
}

/// A condition for the next wave: either numbers of Prometheus, or an approval.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Gate")]
pub struct GateConfig {
    /// The numbers that are read.
    #[serde(default)]
    pub prometheus: Option<PrometheusConfig>,
    /// A CEL expression on `value` and the names under `prometheus.values`: the gate passes if it is true.
    #[serde(default)]
    pub pass: Option<String>,
    /// A CEL expression like `pass`: the rollout stops if it is true. If neither is, the gate waits until its deadline.
    #[serde(default)]
    pub fail: Option<String>,
    /// A CEL expression like `pass`: until it is true, there is too little data, and the gate waits until its deadline.
    #[serde(default)]
    pub least: Option<String>,
    /// The time for which the gate may be unclear; then the rollout stops. Default: 1 hour; an approval has no
    /// deadline.
    #[serde(default)]
    pub deadline: Option<Span>,
    /// The people who must approve the next wave.
    #[serde(default)]
    pub approve: Option<GateApproval>,
}

/// The numbers that a gate reads from Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Prometheus")]
pub struct PrometheusConfig {
    /// The environment variable with the address, such as `https://prometheus.example.com`.
    pub url_env: String,
    /// The environment variable with a bearer token. Default: none.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The query for `value`: one number, or a vector with one sample.
    pub query: String,
    /// The time over which `value` is averaged. Default: the number of now.
    #[serde(default)]
    pub over: Option<Span>,
    /// More queries by the name of their number in `pass`, `fail` and `least`.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

/// The people who must approve the next wave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateApproval {
    /// Teams (`org/team`) or users; one of them must approve the digest of the next wave.
    pub by: Vec<String>,
}

impl GateConfig {
    /// Returns the deadline of the gate; `None` if it may wait for ever.
    pub fn deadline(&self) -> Option<Span> {
        self.deadline
            .or_else(|| self.approve.is_none().then_some(DEADLINE))
    }

    /// Returns the names that the gate's expressions may use, each with its query.
    pub fn queries(&self) -> BTreeMap<&str, &str> {
        let Some(prometheus) = &self.prometheus else {
            return BTreeMap::new();
        };
        let values = prometheus.values.iter();
        let values = values.map(|(name, query)| (name.as_str(), query.as_str()));
        values.chain([("value", prometheus.query.as_str())]).collect()
    }

    pub(super) fn problem(&self, name: &str) -> Option<Problem> {
        let at = format!("gates.{}", name.escape_debug());
        match (&self.prometheus, &self.approve) {
            (Some(prometheus), None) => self.prometheus_problem(&at, prometheus),
            (None, Some(approval)) => {
                if approval.by.is_empty() {
                    let what = format!("{at}.approve.by is empty: nobody could approve");
                    return problem(what).hint("name teams (`org/team`) or users");
                }
                let has_words = self.pass.is_some() || self.fail.is_some() || self.least.is_some();
                has_words.then_some(())?;
                let what = format!("{at}: `pass`, `fail` and `least` read numbers, and an approval has none");
                problem(what).hint("remove these keys, or write a second gate with `prometheus`")
            }
            (None, None) => problem(format!("{at} asks nothing"))
                .hint("write `prometheus: {…}` with `pass`, or `approve: {by: [org/team]}`"),
            (Some(_), Some(_)) => problem(format!("{at} has both `prometheus` and `approve`"))
                .hint("write two gates, and name both in the wave"),
        }
    }

    fn prometheus_problem(&self, at: &str, prometheus: &PrometheusConfig) -> Option<Problem> {
        let variables = [Some(&prometheus.url_env), prometheus.token_env.as_ref()];
        if variables.into_iter().flatten().any(|name| !is_variable(name)) {
            let what =
                format!("{at}.prometheus: `url_env` and `token_env` are names of environment variables");
            return problem(what).hint("write `PROM_URL`, and set it in the job's `env:`");
        }
        if self.queries().values().any(|query| query.trim().is_empty()) {
            let what = format!("{at}.prometheus: a query is empty");
            return problem(what).hint("write PromQL that returns one number");
        }
        if prometheus.over.is_some_and(|over| over == Span::seconds(0)) {
            let what = format!("{at}.prometheus.over is not a time");
            return problem(what).hint("write `10m`, or remove `over`");
        }
        let is_name = |name: &str| is_variable(name) && name != "value";
        if let Some(name) = prometheus.values.keys().find(|name| !is_name(name)) {
            let what = format!(
                "{at}.prometheus.values: `{}` is not a name for a number",
                name.escape_debug()
            );
            return problem(what).hint("write a name of letters, digits and `_`, other than `value`");
        }
        if self.pass.is_none() {
            let what = format!("{at} has no `pass`: it could never pass");
            return problem(what).hint("write `pass: 'value < 0.01'`");
        }
        let known: BTreeSet<&str> = self.queries().into_keys().collect();
        let expressions = [("pass", &self.pass), ("fail", &self.fail), ("least", &self.least)];
        expressions.into_iter().find_map(|(key, text)| {
            let text = text.as_deref()?;
            let what = match CelExpression::compile(text) {
                Err(error) => format!("{at}.{key} is not CEL: {error}"),
                Ok(expression) => {
                    let read = expression.variables();
                    let unknown = read.iter().find(|name| !known.contains(name.as_str()));
                    match unknown {
                        Some(name) => format!("{at}.{key}: `{}` has no query", name.escape_debug()),
                        None if read.is_empty() => format!("{at}.{key} reads no number"),
                        None => return None,
                    }
                }
            };
            let hint = "`value` is the number of `prometheus.query`; give others a query: `values: {requests: 'sum(rate(http_requests_total[5m]))'}`";
            problem(what).hint(hint)
        })
    }
}

impl RolloutConfig {
    /// Returns the digest of the rollout with its gates. A running rollout stops if its digest changes.
    pub fn digest(&self, gates: &BTreeMap<String, GateConfig>) -> Digest {
        let names = self.waves.iter().flat_map(|wave| &wave.gates);
        let used: BTreeMap<_, _> = names.map(|name| (name, gates.get(name))).collect();
        Digest::of_json(&serde_json::json!([self, used]))
    }

    pub(super) fn problem(&self, gates: &BTreeMap<String, GateConfig>) -> Option<Problem> {
        let name = self.name.escape_debug();
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=LONGEST_NAME).contains(&self.name.len())
            && self.name.chars().all(is_part)
            && !self.name.starts_with('-');
        if !is_name {
            let what = format!("rollouts: `{name}` is not a name of a rollout");
            return problem(what).hint("write lower-case letters, digits and `-`, such as `web`");
        }
        if self.waves.is_empty() || self.waves.len() > MOST_WAVES {
            let what = format!("rollouts `{name}` has {} waves", self.waves.len());
            return problem(what).hint(format!(
                    "write between 1 and {MOST_WAVES}: `waves: [{{match: 'appops/*/prod-canary', bake: 30m}}, {{match: 'appops/*/prod'}}]`"
                ));
        }
        self.waves.iter().zip(1..).find_map(|(wave, number)| {
            let at = format!("rollouts `{name}`, wave {number}");
            glob_problem(&at, &wave.pattern, "write `appops/*/prod-eu-*`").or_else(|| {
                let unknown = wave.gates.iter().find(|gate| !gates.contains_key(*gate))?;
                let what = format!(
                    "{at} names gate `{}`, which is not under `gates`",
                    unknown.escape_debug()
                );
                problem(what).hint("define the gate under `gates`")
            })
        })
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigError};

    const WEB: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/prod-canary', bake: 30m, gates: [slo]}\n  - {match: 'appops/*/prod-eu-*', at_once: 25%, bake: 10m, gates: [slo, go]}\n  - {match: 'appops/*/prod-*'}\n  on_failure: rollback\ngates:\n  slo: {prometheus: {url_env: PROM_URL, query: 'error_ratio', over: 10m, values: {requests: 'sum(rate(x[5m]))'}}, pass: 'value < 0.01', fail: 'value > 0.05', least: 'requests > 20'}\n  go: {approve: {by: [acme/sre]}}\n";

    #[test]
    fn a_share_is_at_least_one_stack() {
        for (at_once, size, count) in [
            (AtOnce::Percent(25), 8, 2),
            (AtOnce::Percent(25), 9, 3),
            (AtOnce::Percent(1), 3, 1),
            (AtOnce::Percent(100), 7, 7),
            (AtOnce::Stacks(4), 2, 4),
            (AtOnce::Percent(50), 0, 1),
        ] {
            assert_eq!(at_once.of(size), count, "{at_once} of {size}");
        }
    }

    #[test]
    fn the_digest_follows_the_rollout_and_its_gates() {
        let digest = |text: &str| {
            let config = Config::parse(text).unwrap();
            config.rollouts[0].digest(&config.gates)
        };
        assert_eq!(digest(WEB), digest(WEB));
        assert_ne!(digest(WEB), digest(&WEB.replace("0.01", "0.02")));
        assert_ne!(digest(WEB), digest(&WEB.replace("30m", "20m")));
        assert_eq!(
            digest(WEB),
            digest(&format!("{WEB}  other: {{approve: {{by: [a]}}}}\n"))
        );
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        for (from, to, said) in [
            ("at_once: 25%", "at_once: 0", "at_once"),
            ("at_once: 25%", "at_once: 0%", "at_once"),
            ("at_once: 25%", "at_once: 101%", "at_once"),
            ("at_once: 25%", "at_once: some", "at_once"),
            ("at_once: 25%", "newer: restart", "newer"),
            ("name: web", "name: ''", "not a name"),
            ("name: web", "name: ../web", "not a name"),
            ("name: web", "name: Web", "not a name"),
            ("[slo]", "[slow]", "`slow`"),
            ("'appops/*/prod-eu-*'", "'appops/[/x'", "not a glob"),
            ("value < 0.01", "value <", "not CEL"),
            ("value < 0.01", "true", "reads no number"),
            ("value < 0.01", "errors < 1", "`errors` has no query"),
            ("requests > 20", "visits > 20", "`visits` has no query"),
            ("pass: 'value < 0.01', ", "", "no `pass`"),
            (
                "url_env: PROM_URL",
                "url_env: 'https://prom'",
                "environment variables",
            ),
            ("query: 'error_ratio'", "query: ' '", "empty"),
            ("over: 10m", "over: 0s", "not a time"),
            (
                "{approve: {by: [acme/sre]}}",
                "{approve: {by: []}}",
                "by is empty",
            ),
            ("{approve: {by: [acme/sre]}}", "{}", "asks nothing"),
            (
                "{approve: {by: [acme/sre]}}",
                "{approve: {by: [a]}, pass: 'value > 1'}",
                "an approval has none",
            ),
            ("on_failure: rollback", "on_failure: retry", "retry"),
            ("on_failure: rollback", "on_error: stop", "on_error"),
            ("values: {requests:", "values: {value:", "not a name"),
        ] {
            assert!(WEB.contains(from), "{from}");
            let error = Config::parse(&WEB.replace(from, to)).unwrap_err();
            let ConfigError::Invalid { message, .. } = &error else {
                panic!("{error}")
            };
            assert!(message.contains(said), "{to}: {message}");
        }
        let twice = "rollouts: [{name: a, waves: [{match: a}]}, {name: a, waves: [{match: b}]}]\n";
        assert!(Config::parse(twice).unwrap_err().to_string().contains("twice"));
        let none = Config::parse("rollouts: [{name: a, waves: []}]\n").unwrap_err();
        assert!(none.to_string().contains("0 waves"), "{none}");
    }
}
