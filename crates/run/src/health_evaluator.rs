//! Evaluates readiness rules in KCL with the workers that compile stacks, so that core and sandbox are the same. Lua
//! scripts run in the workers of policy sets.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{RunContext, compiler::Compilers};
use konverge_base::{
    error::chain,
    model::{
        Digest, RepoPath,
        health::HealthReport,
        stack::{CompileSetup, Entry},
    },
    sync::lock,
};
use konverge_config::Config;
use konverge_kcl::{CompileRequest, KclDiagnostic, KclError};
use konverge_kubernetes::health::{AssertionResult, Evaluate};
use konverge_policy_sets::workers::{RuleLimits, RuleWorkers};

/// The first line of a rule: binds the object to the name that Kusion's health policies use.
const PRELUDE: &str = "res = option(\"object\")\n";

/// The processor time that a script may use, as in Argo CD.
const SCRIPT_TIME: Duration = Duration::from_secs(1);

/// Creates the evaluator from the effective configuration. The workers start with the first rule.
pub fn new(run: &RunContext, config: &Config) -> Arc<dyn Evaluate> {
    Arc::new(Workers {
        compilers: Compilers::new(run, config),
        core: config.kcl.core().to_owned(),
        results: Mutex::default(),
        scripts: RuleWorkers::new(
            None,
            RuleLimits {
                time: SCRIPT_TIME,
                ..RuleLimits::default()
            },
        ),
    })
}

struct Workers {
    compilers: Compilers,
    /// The version of the KCL core.
    core: String,
    /// The results so far, because a wait evaluates a rule repeatedly, mostly for an unchanged object.
    results: Mutex<HashMap<Digest, AssertionResult>>,
    scripts: RuleWorkers,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers(..)")
    }
}

#[async_trait]
impl Evaluate for Workers {
    async fn run_kcl(&self, path: &str, code: &str, object: &Value) -> Result<AssertionResult, String> {
        let key = Digest::of_json(&json!([path, code, object]));
        let known = lock(&self.results).get(&key).cloned();
        if let Some(result) = known {
            return Ok(result);
        }
        let pool = self
            .compilers
            .pool(&self.core)
            .await
            .map_err(|failure| failure.to_string())?;
        let result = match pool.compile(&request(path, code, object)).await {
            Ok(compiled) => {
                AssertionResult::Values(compiled.documents.into_iter().next().unwrap_or_default())
            }
            Err(KclError::Code(errors)) if errors.iter().all(is_of_the_object) => {
                AssertionResult::Failed(describe_errors(&errors))
            }
            Err(error) => return Err(chain(&error)),
        };
        let mut results = lock(&self.results);
        results.insert(key, result.clone());
        Ok(result)
    }

    async fn run_lua(&self, script: &str, object: &Value) -> Result<Option<HealthReport>, String> {
        self.scripts.run_script(script, object).await
    }
}

fn request(path: &str, code: &str, object: &Value) -> CompileRequest {
    let files = [("_konverge.k", PRELUDE), ("health.k", code)]
        .map(|(name, text)| (RepoPath::root().child(name), Arc::from(text.as_bytes())));
    CompileRequest {
        label: path.to_owned(),
        setup: CompileSetup {
            entries: files.iter().map(|(name, _)| Entry::main(name.clone())).collect(),
            options: vec![("object".to_owned(), object.clone())],
            ..CompileSetup::default()
        },
        files: files.to_vec(),
        ..CompileRequest::default()
    }
}

/// Returns true if an error comes from the content of the object and not from the rule itself.
fn is_of_the_object(error: &KclDiagnostic) -> bool {
    error.name == "EvaluationError"
}

/// Returns the message that the author of the rule wrote. In a failed check, KCL has it beside the position of the
/// check.
fn describe_errors(errors: &[KclDiagnostic]) -> String {
    let Some(error) = errors.first() else {
        return "an assertion fails".to_owned();
    };
    let check = error.related.last().map(|(_, message)| message.as_str());
    let words = check.unwrap_or(&error.message);
    words
        .trim_start_matches("Check failed on the condition: ")
        .to_owned()
}
