//! Runs the core's formatter. It changes the meaning of some valid files: it writes `1.0` as `1`, and moves a comment
//! after `if a:` before the colon. So its output is used only if formatting it again changes nothing, and if it has the
//! same syntax tree and the same comments as the file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CompileRequest, KclError, Pool,
    assignments::{import_path, without_relative_imports},
    protocol::{FormatCodeArgs, FormatCodeResult},
};
use konverge_base::model::RepoPath;

/// The result of the core's formatter for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Formatting {
    /// The formatter changes nothing.
    Formatted,
    /// The formatter prints this other text, which has the same meaning.
    Unformatted(String),
    /// The output of the formatter is not used, for this reason.
    Untrusted(FormatFault),
}

/// A [`Formatting`] without the formatted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatVerdict {
    /// The formatter changes nothing.
    Formatted,
    /// The formatter prints another text, which has the same meaning.
    Unformatted,
    /// The output of the formatter is not used, for this reason.
    Untrusted(FormatFault),
}

/// The reasons why the output of the formatter is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum FormatFault {
    /// The formatter failed.
    #[error("the KCL formatter fails on the file")]
    Fails,
    /// The output of the formatter is not valid KCL.
    #[error("the output of the KCL formatter is not valid KCL")]
    NotKcl,
    /// The syntax trees of the file and of the output differ.
    #[error("the KCL formatter would change the meaning of the file")]
    OtherMeaning,
    /// The comments of the file and of the output differ.
    #[error("the KCL formatter would change a comment")]
    OtherComments,
    /// Formatting the output again gives another text.
    #[error("the KCL formatter would format its own output differently")]
    Unstable,
}

impl Formatting {
    /// Returns the result without the text.
    pub fn verdict(&self) -> FormatVerdict {
        match self {
            Self::Formatted => FormatVerdict::Formatted,
            Self::Unformatted(_) => FormatVerdict::Unformatted,
            Self::Untrusted(fault) => FormatVerdict::Untrusted(*fault),
        }
    }
}

impl Pool {
    /// Formats a file as `kcl fmt` does, and checks the result.
    ///
    /// # Errors
    /// The text is not KCL, or the connection to the worker is lost.
    pub async fn formatting(&self, path: &RepoPath, text: &str) -> Result<Formatting, KclError> {
        // For an empty text, the core would read the file at this path instead.
        if text.trim().is_empty() {
            return Ok(Formatting::Formatted);
        }
        let printed = self.print(path, text).await?;
        if printed.as_deref() == Some(text) {
            return Ok(Formatting::Formatted);
        }
        let meaning = self.meaning(path, text).await?;
        let Some(printed) = printed else {
            return Ok(Formatting::Untrusted(FormatFault::Fails));
        };
        Ok(match self.fault(path, &meaning, &printed).await? {
            Some(fault) => Formatting::Untrusted(fault),
            None => Formatting::Unformatted(printed),
        })
    }

    async fn fault(
        &self,
        path: &RepoPath,
        wanted: &Meaning,
        printed: &str,
    ) -> Result<Option<FormatFault>, KclError> {
        let found = match self.meaning(path, printed).await {
            Ok(found) => found,
            Err(KclError::Code(_)) => return Ok(Some(FormatFault::NotKcl)),
            Err(other) => return Err(other),
        };
        if found.tree != wanted.tree {
            return Ok(Some(FormatFault::OtherMeaning));
        }
        if found.comments != wanted.comments {
            return Ok(Some(FormatFault::OtherComments));
        }
        let again = self.print(path, printed).await?;
        Ok((again.as_deref() != Some(printed)).then_some(FormatFault::Unstable))
    }

    /// Returns the output of the formatter for a text; `None` if the formatter fails.
    async fn print(&self, path: &RepoPath, text: &str) -> Result<Option<String>, KclError> {
        let request = CompileRequest {
            label: path.to_string(),
            ..CompileRequest::default()
        };
        // The formatter panics at a relative import, so these imports are rewritten first.
        let message = |_: &Path| FormatCodeArgs {
            source: without_relative_imports(text),
        };
        let called = self.call::<_, FormatCodeResult>(&request, "FormatCode", message);
        let printed = match called.await {
            Ok((result, _)) => String::from_utf8(result.formatted).ok(),
            Err(KclError::Code(_) | KclError::Crash { .. }) => None,
            Err(other) => return Err(other),
        };
        Ok(printed.and_then(|printed| with_relative_imports(&printed, text)))
    }

    async fn meaning(&self, path: &RepoPath, text: &str) -> Result<Meaning, KclError> {
        let mut tree = self.syntax_tree(path, text).await?;
        let comments = tree.as_object_mut().and_then(|module| module.remove("comments"));
        let comments = comments.unwrap_or_default();
        let texts = comments.as_array().into_iter().flatten();
        let texts = texts.filter_map(|comment| comment["node"]["text"].as_str());
        let mut comments: Vec<String> = texts.map(|text| text.trim_end().to_owned()).collect();
        comments.sort();
        remove_positions(&mut tree);
        Ok(Meaning { tree, comments })
    }
}

/// The syntax tree and the comments of a file, which formatting must not change.
struct Meaning {
    tree: Value,
    comments: Vec<String>,
}

fn remove_positions(tree: &mut Value) {
    match tree {
        Value::Object(node) => {
            for position in ["filename", "line", "column", "end_line", "end_column"] {
                node.remove(position);
            }
            node.values_mut().for_each(remove_positions);
        }
        Value::Array(nodes) => nodes.iter_mut().for_each(remove_positions),
        _ => {}
    }
}

/// Restores the dots of the imports in a formatted text as they are in `text`. `None` if the imports differ otherwise.
fn with_relative_imports(printed: &str, text: &str) -> Option<String> {
    let dots = |path: &str| path.len() - path.trim_start_matches('.').len();
    let mut wanted = text.lines().filter_map(import_path).map(dots);
    let mut restored = String::with_capacity(printed.len());
    for line in printed.split_inclusive('\n') {
        match import_path(line) {
            Some(path) => {
                let dots = wanted.next()?;
                let rest = path.strip_prefix("_".repeat(dots).as_str())?;
                restored.push_str(&line[..line.len() - path.len()]);
                restored.push_str(&".".repeat(dots));
                restored.push_str(rest);
            }
            None => restored.push_str(line),
        }
    }
    wanted.next().is_none().then_some(restored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_imports_come_back_as_they_were() {
        let text = "import  ..a.b as c\nimport __d\nimport math\nimport .e\nimportant = 1\n";
        let hidden = without_relative_imports(text);
        assert!(!hidden.contains('.') || hidden.contains("__a.b"), "{hidden}");
        let printed = hidden.replace("import  ", "import ");
        assert_eq!(
            with_relative_imports(&printed, text).as_deref(),
            Some(text.replace("import  ", "import ").as_str())
        );
        for other in [
            "import __a.b as c\n",
            &format!("{hidden}import x\n"),
            "import a\nimport b\nimport c\nimport d\n",
        ] {
            assert_eq!(with_relative_imports(other, text), None, "{other}");
        }
    }

    #[test]
    fn positions_are_not_a_meaning() {
        let mut tree = serde_json::json!({"node": {"type": "A", "line": 1}, "column": 2, "filename": "a", "b": [{"end_line": 3}]});
        remove_positions(&mut tree);
        assert_eq!(tree, serde_json::json!({"node": {"type": "A"}, "b": [{}]}));
    }
}
