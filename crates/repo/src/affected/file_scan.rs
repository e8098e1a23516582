//! [`FileScan`]: everything that the analysis needs to know about the content of a file. It is small enough to cache it
//! for every file.

use super::{
    Import,
    core_compat::reads_files,
    import_scanner::{ScanResult, scan_imports},
    runtime_reads::ReadCall,
};
use serde::{Deserialize, Serialize};

/// The other files that a `.k` file refers to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileScan {
    /// The imports: leading dots and path; sorted and unique.
    pub imports: Vec<(u32, String)>,
    /// The import of a module that can read files, if there is one.
    pub reader_import: ReaderImport,
    /// The files that the code reads, if it imports the module that can read files under its own name.
    pub reads: RuntimeReads,
}

/// The form in which a file imports a module that can read other files during evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum ReaderImport {
    /// The file imports no module that can read files.
    #[default]
    Closed,
    /// The module is imported under its own name.
    Open,
    /// The module is imported under another name, so its calls are unknown.
    Renamed,
}

/// The files that a `.k` file reads during evaluation, as far as its text shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RuntimeReads {
    /// The file reads nothing.
    #[default]
    Nothing,
    /// The file reads these files, relative to its own folder; sorted.
    Named(Vec<String>),
    /// The file may read everything that the core allows.
    Anything,
}

impl FileScan {
    /// Scans the content of a file.
    pub fn scan(bytes: &[u8]) -> Self {
        let ScanResult { imports: found, uses } = scan_imports(bytes);
        let doors = found
            .iter()
            .filter(|import| import.dots == 0 && reads_files(import.first()));
        let door = doors.map(|import| {
            if import.used_as() == import.path {
                ReaderImport::Open
            } else {
                ReaderImport::Renamed
            }
        });
        let door = door.max().unwrap_or_default();
        let mut imports: Vec<_> = found
            .into_iter()
            .map(|Import { dots, path, .. }| (dots, path))
            .collect();
        imports.sort_unstable();
        imports.dedup();
        Self {
            imports,
            reader_import: door,
            reads: RuntimeReads::from_uses(uses),
        }
    }
}

impl RuntimeReads {
    fn from_uses(uses: Vec<ReadCall>) -> Self {
        let mut names = Vec::new();
        for used in uses {
            match used {
                ReadCall::Pure => {}
                ReadCall::Reads(name) => names.push(name),
                ReadCall::Unclear => return Self::Anything,
            }
        }
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            Self::Nothing
        } else {
            Self::Named(names)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_sorted_and_each_is_told_once() {
        let facts = FileScan::scan(b"import b\nimport ..a\nimport file\nimport b");
        assert_eq!(
            facts.imports,
            [(0, "b".to_owned()), (0, "file".to_owned()), (2, "a".to_owned())]
        );
        assert_eq!(
            (facts.reader_import, facts.reads),
            (ReaderImport::Open, RuntimeReads::Nothing)
        );
    }

    #[test]
    fn only_a_plain_call_with_a_plain_text_says_what_is_read() {
        let reads = |text: &str| FileScan::scan(text.as_bytes()).reads;
        let named =
            |names: &[&str]| RuntimeReads::Named(names.iter().map(|name| (*name).to_owned()).collect());
        for (text, expected) in [
            ("x = file.read(\"a.txt\")", named(&["a.txt"])),
            (
                "x = file . read( 'b/a.txt' ) + file.size(\"c\")",
                named(&["b/a.txt", "c"]),
            ),
            ("x = crypto.filesha256(\n  \"a\"\n)", named(&["a"])),
            ("x = crypto.sha256(data, \"utf-8\")", RuntimeReads::Nothing),
            ("x = file.exists(\"a\", True)", named(&["a"])),
            ("x = a.file", RuntimeReads::Nothing),
            ("# file.read(x)\ny = \"file.read(x)\"", RuntimeReads::Nothing),
        ] {
            assert_eq!(reads(text), expected, "{text}");
        }
        for text in [
            "x = file.read(name)",
            "x = file.read(\"a\" + b)",
            "x = file.read(\"a\" if b else c)",
            "x = file.read(\"a\" \"b\")",
            "x = file.read(\"\\x61\")",
            "x = file.read(\"${a}\")",
            "x = file.read(r\"a\")",
            "x = file.read(\"\"\"a\"\"\")",
            "x = file.read(filepath=\"a\")",
            "x = file.read(\"a\" # b\n)",
            "x = file.glob(\"*.txt\")",
            "x = file.read",
            "f = file",
            "x = $file.read(\"a\")",
            "x = \"${file.read('a')}\"",
            "x = crypto.fileunknown(\"a\")",
        ] {
            assert_eq!(reads(text), RuntimeReads::Anything, "{text}");
        }
        assert_eq!(
            FileScan::scan(b"import file as f\nimport file").reader_import,
            ReaderImport::Renamed
        );
        assert_eq!(
            FileScan::scan(b"import a.file").reader_import,
            ReaderImport::Closed
        );
    }
}
