//! [`FileScan`]: all that the analysis needs to know of a file's content, small enough to keep for every file.

use super::{
    Import,
    core_compat::reads_files,
    import_scanner::{ScanResult, survey},
    runtime_reads::ReadCall,
};

/// What a `.k` file's content says about other files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileScan {
    /// Its imports: leading dots and path, sorted, each once.
    pub imports: Vec<(u32, String)>,
    /// Whether it imports a module that reads files.
    pub door: EntryPoint,
    /// What it reads if such a module is at hand under its own name.
    pub reads: RuntimeReads,
}

/// Whether a file imports a module that reads other files at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum EntryPoint {
    /// It does not.
    #[default]
    Closed,
    /// It does, under the module's own name.
    Open,
    /// It does, under another name: what it is used for is not known.
    Renamed,
}

/// Files that a `.k` file reads at run time, by its own text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RuntimeReads {
    /// None.
    #[default]
    Nothing,
    /// Those that it names, relative to its own folder; sorted.
    Named(Vec<String>),
    /// Whatever the core lets it read.
    Anything,
}

impl FileScan {
    /// Reads them off a content.
    pub fn scan(bytes: &[u8]) -> Self {
        let ScanResult { imports: found, uses } = survey(bytes);
        let doors = found
            .iter()
            .filter(|import| import.dots == 0 && reads_files(import.first()));
        let door = doors.map(|import| {
            if import.used_as() == import.path {
                EntryPoint::Open
            } else {
                EntryPoint::Renamed
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
            door,
            reads: RuntimeReads::of(uses),
        }
    }
}

impl RuntimeReads {
    fn of(uses: Vec<ReadCall>) -> Self {
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
            (facts.door, facts.reads),
            (EntryPoint::Open, RuntimeReads::Nothing)
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
            FileScan::scan(b"import file as f\nimport file").door,
            EntryPoint::Renamed
        );
        assert_eq!(FileScan::scan(b"import a.file").door, EntryPoint::Closed);
    }
}
