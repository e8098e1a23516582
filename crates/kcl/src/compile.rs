//! Converts a stack's setup to a request for the core, and the core's response to values.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use prost::Message;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    KclError, diagnostic,
    protocol::{Argument, ExecProgramArgs, ExecProgramResult, ExternalPkg, WorkerStatus},
};
use konverge_base::{
    error::SharedError,
    model::{
        RepoPath, ResourceId,
        stack::{CompileSetup, Entry, EntryPackage},
        text::truncate,
    },
};

/// A program to compile, with all files that it may read.
#[derive(Debug, Clone, Default)]
pub struct CompileRequest {
    /// The stack's identity, for messages.
    pub label: String,
    /// The entries, options and settings of the stack.
    pub setup: CompileSetup,
    /// Every file that the compilation may read, by its path in the repository.
    pub files: Vec<(RepoPath, Arc<[u8]>)>,
    /// The links inside the repository, with their targets.
    pub links: Vec<(RepoPath, String)>,
    /// The folders that must exist even if they are empty.
    pub folders: Vec<RepoPath>,
    /// The fetched packages: the name in imports, and the folder below [`super::PoolOptions::packages`].
    pub packages: Vec<(String, std::path::PathBuf)>,
    /// The names of packages that no lock pins. With such a package the result is not cached, and none of its programs
    /// runs.
    pub unlocked: Vec<String>,
    /// True to print the schema's name as `_type` in each instance, and to leave out `None`.
    pub schema_types: bool,
}

/// The output of a compiled stack. Entries of the compile cache have this form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Compiled {
    /// The documents, in order: one, or several if the code calls `manifests.yaml_stream`. Keys keep their order, and
    /// integers, floats and strings keep their KCL types.
    pub documents: Vec<Value>,
    /// The lines that the program printed.
    pub warnings: Vec<String>,
    /// The resources that were generated for all stacks of the project. Always empty for plain KCL code.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shared: BTreeSet<ResourceId>,
    /// Notes for the developer from the generation of a Spec. Always empty for plain KCL code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Returns the request for the core. The files are below `root`.
pub(super) fn arguments(request: &CompileRequest, root: &Path) -> ExecProgramArgs {
    let setup = &request.setup;
    let absolute = |path: &RepoPath| root.join(path).display().to_string();
    ExecProgramArgs {
        work_dir: absolute(&setup.work_dir),
        k_filename_list: setup
            .entries
            .iter()
            .map(|entry| as_written(entry, setup).unwrap_or_else(|| absolute(&entry.path)))
            .collect(),
        args: setup
            .options
            .iter()
            .map(|(name, value)| Argument {
                name: name.clone(),
                value: value.to_string(),
            })
            .collect(),
        overrides: setup.overrides.clone(),
        disable_yaml_result: true,
        strict_range_check: setup.strict_range_check,
        disable_none: setup.disable_none || request.schema_types,
        external_pkgs: external_packages(request, root),
        include_schema_type_path: request.schema_types,
        path_selector: setup.path_selector.clone(),
        fast_eval: false,
    }
}

/// Returns the packages of a program with their folders.
pub(super) fn external_packages(request: &CompileRequest, root: &Path) -> Vec<ExternalPkg> {
    let inside = request.setup.packages.iter();
    let inside = inside.map(|(name, folder)| (name.clone(), root.join(folder)));
    inside
        .chain(request.packages.iter().cloned())
        .map(|(pkg_name, folder)| ExternalPkg {
            pkg_name,
            pkg_path: folder.display().to_string(),
        })
        .collect()
}

/// The maximum length of an error or of printed text that is read, in bytes.
const LONGEST: usize = 256 << 10;

/// Returns the entry of a package in the form that the core expects, which names the package. `None` for an entry that
/// is given by its path.
fn as_written(entry: &Entry, setup: &CompileSetup) -> Option<String> {
    let (variable, root) = match &entry.package {
        EntryPackage::Main => return None,
        EntryPackage::Root(root) => ("KCL_MOD".to_owned(), root),
        EntryPackage::Dependency(name) => {
            let (_, folder) = setup.packages.iter().find(|(known, _)| known == name)?;
            (format!("{name}:KCL_MOD"), folder)
        }
    };
    let inside = entry.path.relative_to(root)?;
    Some(format!("${{{variable}}}/{inside}"))
}

/// Parses the core's response.
pub(super) fn answer(
    status: WorkerStatus,
    body: &[u8],
    label: &str,
    root: &Path,
) -> Result<Compiled, KclError> {
    let refused = |text: &str| KclError::Code(diagnostic::read(&truncate(text, LONGEST), root));
    match status {
        WorkerStatus::Done => {}
        WorkerStatus::Refused => return Err(refused(&String::from_utf8_lossy(body))),
        WorkerStatus::Panicked => {
            let text = String::from_utf8_lossy(body);
            let text = truncate(&text, LONGEST);
            let all = diagnostic::read(&text, root);
            // Cores before 0.10 report an error in the code as a panic with the usual error text.
            if all.iter().any(|diagnostic| diagnostic.place.is_some()) {
                return Err(KclError::Code(all));
            }
            return Err(KclError::Crash {
                label: label.to_owned(),
                why: diagnostic::plain(&text, root).trim().to_owned(),
            });
        }
    }
    let result = ExecProgramResult::decode(body).map_err(|error| KclError::Answer(error.into()))?;
    if !result.err_message.is_empty() {
        return Err(refused(&result.err_message));
    }
    let documents = serde_json::Deserializer::from_str(&result.json_result)
        .into_iter::<Value>()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| KclError::Answer(SharedError::from(error).context("its JSON")))?;
    let warnings = diagnostic::plain(&truncate(&result.log_message, LONGEST), root)
        .lines()
        .map(str::to_owned)
        .collect();
    Ok(Compiled {
        documents,
        warnings,
        shared: BTreeSet::new(),
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_output(json: &str) -> Result<Compiled, KclError> {
        let result = ExecProgramResult {
            json_result: json.to_owned(),
            ..ExecProgramResult::default()
        };
        answer(
            WorkerStatus::Done,
            &result.encode_to_vec(),
            "p/s",
            Path::new("/s"),
        )
    }

    #[test]
    fn types_and_key_order_survive() {
        let json = r#"{"z":"1","a":9223372036854775807,"f":1.0,"e":1e+20}"#;
        let value = &parse_output(json).unwrap().documents[0];
        assert_eq!(
            value.to_string(),
            r#"{"z":"1","a":9223372036854775807,"f":1.0,"e":1e+20}"#
        );
    }

    #[test]
    fn a_stream_is_several_documents() {
        assert_eq!(parse_output("{\"a\": 1}\n{\"b\": 2}").unwrap().documents.len(), 2);
    }

    #[test]
    fn options_keep_their_types() {
        let mut request = CompileRequest::default();
        request.setup.options = vec![("a".to_owned(), "1".into()), ("b".to_owned(), 1.into())];
        let arguments = arguments(&request, Path::new("/s"));
        assert_eq!(arguments.args[0].value, "\"1\"");
        assert_eq!(arguments.args[1].value, "1");
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        assert!(matches!(parse_output("{\"a\": nan}"), Err(KclError::Answer(_))));
        assert!(matches!(
            answer(WorkerStatus::Done, &[0xff], "p/s", Path::new("/s")),
            Err(KclError::Answer(_))
        ));
    }
}
