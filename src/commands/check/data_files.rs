//! Checks data files against the KCL schemas of `checks.data`, by the core's own validation, as `kcl vet` does.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use globset::GlobBuilder;

use super::{CheckedFiles, programs};
use crate::commands::selected_stacks::SelectedStacks;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        file_source::{FileEntry, FileKind},
        lint::{Diagnostic, LintRule},
        stack::Entry,
    },
    yaml::{self, JsonDocument, ScalarRules, YamlError},
};
use konverge_config::{Config, DataCheckConfig, FILE_NAME};
use konverge_kcl::{CompileRequest, KclDiagnostic, Pool, SchemaPlace};
use konverge_repo::affected::Analysis;
use konverge_run::{OpenRevision, RunContext, compiler::Compiler};

/// The number of files that are validated at once; the pool has fewer workers.
const AT_ONCE: usize = 8;

/// Validates the data files of the scope, and all files of a rule that changed or whose schema changed.
pub(super) async fn check(
    run: &RunContext,
    compiler: Compiler<'_>,
    selected: &SelectedStacks,
    checked: &CheckedFiles<'_>,
) -> Result<Vec<Diagnostic>, UserError> {
    let workspace = &selected.workspace;
    let before = selected.base.as_ref();
    let rules_before = before.and_then(|base| Config::load(base.source.as_ref()).ok());
    let rules_before = rules_before.map(|config| config.checks.data).unwrap_or_default();
    let mut found = Vec::new();
    for rule in &workspace.config.checks.data {
        let Some(schema) = SchemaProgram::find(workspace, rule)? else {
            found.push(in_config(
                workspace,
                &rule.schema,
                &format!(
                    "`{}`: there is no such folder or `.k` file",
                    rule.schema.escape_debug()
                ),
                "`checks.data[].schema` is PATH:NAME, with the path from the root of the repository",
            ));
            continue;
        };
        let files = matching(workspace, rule)?;
        if files.is_empty() {
            found.push(in_config(
                workspace,
                &rule.files,
                &format!("no file matches `{}`", rule.files.escape_debug()),
                "correct the glob, or remove the rule: it validates nothing",
            ));
            continue;
        }
        // A changed rule or schema may make files invalid that the change itself does not touch.
        let is_touched = match before {
            Some(base) => !rules_before.contains(rule) || schema.differs_from(base, rule)?,
            None => false,
        };
        let files = files.into_iter();
        let files: Vec<_> = files
            .filter(|(path, _)| is_touched || checked.is_in_scope(path))
            .collect();
        if !files.is_empty() {
            found.extend(schema.validate(run, compiler, files).await?);
        }
    }
    Ok(found)
}

/// Returns the files of the revision that a rule matches.
fn matching(
    workspace: &OpenRevision,
    rule: &DataCheckConfig,
) -> Result<Vec<(RepoPath, FileEntry)>, UserError> {
    let glob = GlobBuilder::new(rule.files.trim_start_matches("./"))
        .literal_separator(true)
        .build()
        .map_err(|error| UserError::from_error(ErrorKind::Config, error))?
        .compile_matcher();
    let files = workspace.source.files().iter();
    let files =
        files.filter(|(path, entry)| entry.kind != FileKind::Submodule && glob.is_match(path.as_str()));
    Ok(files.map(|(path, entry)| (path.clone(), *entry)).collect())
}

/// Returns a diagnostic about a rule, at the line of konverge.yaml that contains `text`.
fn in_config(workspace: &OpenRevision, text: &str, message: &str, hint: &str) -> Diagnostic {
    let file = RepoPath::root().child(FILE_NAME);
    let config = workspace
        .source
        .read_path(&file)
        .ok()
        .flatten()
        .unwrap_or_default();
    let config = String::from_utf8_lossy(&config);
    let lines = config.lines().enumerate();
    let mut rules = lines.skip_while(|(_, line)| !line.starts_with("checks:"));
    let line = rules.find(|(_, line)| line.contains(text));
    let line = line.and_then(|(number, _)| u32::try_from(number + 1).ok());
    Diagnostic::new(&file, LintRule::Data, message)
        .at(line, None)
        .hint(hint)
}

/// The schema of a rule, with the program that defines it.
struct SchemaProgram<'a> {
    name: &'a str,
    /// The folder of the program, or its only file.
    path: RepoPath,
    /// The folder that the core reads.
    folder: RepoPath,
    analysis: Analysis,
}

impl<'a> SchemaProgram<'a> {
    /// Finds the program of a rule; `None` if the path is neither a folder nor a KCL file of the revision.
    fn find(workspace: &OpenRevision, rule: &'a DataCheckConfig) -> Result<Option<Self>, UserError> {
        let Some((path, name)) = rule.schema_parts() else {
            return Ok(None);
        };
        let tree = workspace.analysis.tree();
        let is_file = path.file_name().ends_with(".k") && tree.is_file(&path);
        let folder = if is_file {
            path.parent().unwrap_or_default()
        } else if path.is_root() || tree.is_folder(&path) {
            path.clone()
        } else {
            return Ok(None);
        };
        let program = (folder.clone(), vec![Entry::main(path.clone())]);
        let analysis = programs::analyze(workspace, [program], None)?;
        Ok(Some(Self {
            name,
            path,
            folder,
            analysis,
        }))
    }

    /// Returns true if the program differs from the one at the base.
    fn differs_from(&self, base: &OpenRevision, rule: &DataCheckConfig) -> Result<bool, UserError> {
        let digest = |program: &SchemaProgram<'_>| {
            let stack = program.analysis.layout().stacks.first()?;
            program.analysis.input_digest(stack).ok()
        };
        let before = SchemaProgram::find(base, rule)?;
        let before = before.as_ref().and_then(digest);
        Ok(before.is_none() || before != digest(self))
    }

    async fn validate(
        &self,
        run: &RunContext,
        compiler: Compiler<'_>,
        files: Vec<(RepoPath, FileEntry)>,
    ) -> Result<Vec<Diagnostic>, UserError> {
        let stack = self
            .analysis
            .layout()
            .stacks
            .first()
            .expect("it has this one program");
        let request = compiler.request(&self.analysis, stack).await;
        let request = match request.map_err(UserError::from) {
            Ok(request) => request,
            Err(failure) if run.cancel.is_cancelled() => return Err(failure),
            Err(failure) => {
                let message = format!("the schema `{}` cannot be read: {}", self.name, failure.message);
                let found = Diagnostic::new(&self.path, LintRule::Data, &message);
                return Ok(vec![found.first_hint(&failure.hints)]);
            }
        };
        let is_program = |path: &RepoPath| {
            path.file_name().ends_with(".k") && path.parent().as_ref() == Some(&self.folder)
        };
        if !request.files.iter().any(|(path, _)| is_program(path)) {
            let message = format!("has no KCL file, so there is no schema `{}`", self.name);
            return Ok(vec![Diagnostic::new(&self.path, LintRule::Data, &message)]);
        }
        let pool = compiler.validators().await?;
        let validated = files.iter().map(|(path, entry)| async {
            run.check_interrupted()?;
            self.validate_file(&pool, &request, compiler.revision(), path, entry)
                .await
        });
        let found: Vec<Vec<Diagnostic>> = stream::iter(validated).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn validate_file(
        &self,
        pool: &Pool,
        request: &CompileRequest,
        workspace: &OpenRevision,
        path: &RepoPath,
        entry: &FileEntry,
    ) -> Result<Vec<Diagnostic>, UserError> {
        let refused =
            |message: &str, hint: &str| Ok(vec![Diagnostic::new(path, LintRule::Data, message).hint(hint)]);
        if entry.kind == FileKind::Symlink {
            return refused(
                "is a link, which is not validated",
                "let the glob of `checks.data` match the file itself",
            );
        }
        let content = workspace.source.read(entry.blob);
        let content = content?;
        let Ok(text) = std::str::from_utf8(&content) else {
            return refused("is not UTF-8", "save the file as UTF-8: KCL reads nothing else");
        };
        let documents = match documents(path, text) {
            Ok(Some(documents)) => documents,
            Ok(None) => {
                return refused(
                    "is neither `.yaml`, `.yml` nor `.json`",
                    "narrow the glob of `checks.data` to data files",
                );
            }
            Err(error) => {
                let found = Diagnostic::new(path, LintRule::Data, &error.message);
                return Ok(vec![found.at(error.line, error.column)]);
            }
        };
        // An empty list is valid: it has no item that could be wrong.
        if documents.is_empty() && yaml::documents(text).is_ok_and(|values| values.is_empty()) {
            let message = format!("has no mapping; the schema `{}` needs one", self.name);
            return refused(&message, "write a mapping into the file, or delete the file");
        }
        let mut found = Vec::new();
        for document in &documents {
            if !document.json.trim_start().starts_with('{') {
                let message = format!(
                    "is not a mapping; the schema `{}` needs one, or a list of them",
                    self.name
                );
                found.push(Diagnostic::new(path, LintRule::Data, &message).at(Some(document.line), None));
                continue;
            }
            let mut request = request.clone();
            request.label = path.to_string();
            request.files.retain(|(other, _)| other != path);
            request
                .files
                .push((path.clone(), document.json.as_bytes().into()));
            let schema = SchemaPlace {
                folder: &self.folder,
                name: self.name,
            };
            match pool.validate(&request, schema, path).await {
                Ok(diagnostics) => {
                    let precise = diagnostics.iter().filter(|one| !is_vague(one, &diagnostics));
                    found.extend(precise.map(|diagnostic| self.finding(path, document, diagnostic)));
                }
                Err(error) if error.is_of_the_core() => return Err(error.into()),
                Err(error) => {
                    let failure = UserError::from(error);
                    let lost = Diagnostic::new(path, LintRule::Data, &failure.message);
                    found.push(lost.first_hint(&failure.hints).at(Some(document.line), None));
                }
            }
        }
        Ok(found)
    }

    /// Converts a diagnostic of the core for a document. Type errors have their line in the data, and errors of the
    /// schema's own program their position. For a check that fails the core reports a line near it, or one of the
    /// schema, so the diagnostic is placed at the start of the document.
    fn finding(&self, path: &RepoPath, document: &JsonDocument, diagnostic: &KclDiagnostic) -> Diagnostic {
        let place = diagnostic.place.as_ref();
        let file = place.and_then(|place| RepoPath::normalize(&place.file));
        let in_data = file.as_ref() == Some(path);
        if in_data && diagnostic.message == format!("name '{}' is not defined", self.name) {
            let message = format!("there is no schema `{}` in `{}`", self.name, self.path);
            return Diagnostic::new(&self.path, LintRule::Data, &message)
                .hint("`checks.data[].schema` of konverge.yaml names this schema");
        }
        let related = diagnostic.related.iter();
        let related = related.map(|(place, message)| format!("\n  {place}: {message}"));
        let message: String = [diagnostic.head()].into_iter().chain(related).collect();
        let at = |file: &RepoPath, message: &str| Diagnostic::new(file, LintRule::Data, message);
        match (file, place) {
            (Some(file), Some(place)) if diagnostic.code.is_some() => {
                let mut found = at(&file, &message).at(place.line, place.column);
                found.hint = (!in_data && self.path != self.folder).then(|| {
                    format!(
                        "`{}` is read alone; name its folder in `checks.data[].schema` to read its package",
                        self.path
                    )
                });
                found
            }
            _ if diagnostic.message.contains("Failed to Load") => at(
                path,
                "it has a whole number beyond 64 bits, which KCL does not support",
            )
            .at(Some(document.line), None),
            _ => at(path, &message).at(Some(document.line), None),
        }
    }
}

/// Returns true if another error has the same message with a value. The core repeats the error of a part for the whole,
/// without the value.
fn is_vague(one: &KclDiagnostic, all: &[KclDiagnostic]) -> bool {
    let places = |diagnostic: &KclDiagnostic| -> Vec<_> {
        let related = diagnostic.related.iter();
        related.map(|(place, _)| place.clone()).collect()
    };
    all.iter().any(|other| {
        other.message.len() > one.message.len()
            && other.message.starts_with(&one.message)
            && places(other) == places(one)
    })
}

/// Parses the documents of a data file; `None` if its name has another extension.
fn documents(path: &RepoPath, text: &str) -> Result<Option<Vec<JsonDocument>>, YamlError> {
    let name = path.file_name();
    if name.ends_with(".json") {
        // The YAML parser would accept more than JSON, so check the syntax first.
        serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| YamlError {
            line: u32::try_from(error.line()).ok(),
            column: u32::try_from(error.column()).ok(),
            message: format!("is not JSON: {error}"),
        })?;
    } else if !name.ends_with(".yaml") && !name.ends_with(".yml") {
        return Ok(None);
    }
    yaml::json_documents(text, ScalarRules::KclData).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RepoPath {
        RepoPath::normalize(text).unwrap()
    }

    #[test]
    fn json_is_strict_and_yaml_has_documents() {
        let lines = |file: &str, text: &str| {
            let documents = documents(&path(file), text).unwrap().unwrap().into_iter();
            documents.map(|document| document.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("a.yaml", "a: 1\n---\nb: 2\n"), [1, 3]);
        assert_eq!(lines("a.json", "\n{\"a\": 1}\n"), [2]);
        for (file, text, line) in [
            ("a.json", "\n{a: 1}", 2),
            ("a.json", "{\n\"a\": 1, \"a\": 2}", 2),
            ("a.yml", "a: 1\na: 2\n", 2),
        ] {
            let error = documents(&path(file), text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text}: {error:?}");
        }
        assert_eq!(documents(&path("a.toml"), "a = 1").unwrap(), None);
    }
}
