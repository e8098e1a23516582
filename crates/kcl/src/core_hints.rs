//! Hints for errors that another version of the core would not report. Each entry was tested by running the same
//! program with every core from 0.9.0 to 0.13.2 on PyPI.

use super::{DEFAULT_VERSION, KclDiagnostic};
use konverge_base::model::kcl_modules::SYSTEM_MODULES;

/// The range of cores that accept code which other cores refuse. Both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreRange {
    /// The first version of the range; `None` if it begins with the oldest core.
    pub since: Option<&'static str>,
    /// The last version of the range; `None` if it ends with the newest core.
    pub until: Option<&'static str>,
    /// A short description of the code that the other cores refuse.
    pub what: &'static str,
}

impl CoreRange {
    const fn since(version: &'static str, what: &'static str) -> Self {
        Self {
            since: Some(version),
            until: None,
            what,
        }
    }

    const fn until(version: &'static str, what: &'static str) -> Self {
        Self {
            since: None,
            until: Some(version),
            what,
        }
    }
}

/// Two packages are imported under the same name by files of one package. Code that uses the name then fails as well.
const IMPORT_NAMES: CoreRange = CoreRange::until("0.10.0", "one import name for two packages");
const PRIVATE_MEMBERS: CoreRange = CoreRange::until("0.13.0", "private members of another package");
const HIDDEN_IMPORTS: CoreRange = CoreRange::until("0.10.0", "an import hidden by an attribute of its name");
const UNEQUAL_LISTS: CoreRange = CoreRange::since("0.12.5", "lists compared by `!=`");
const FAR_FILES: CoreRange = CoreRange::until("0.13.0", "reading files outside of the folder");
const SYSTEM_NAMES: CoreRange = CoreRange::until("0.12.5", "a folder with the name of a system module");
const NEW_MEMBERS: &str = "members that newer cores added to system modules";
const OLD_MEMBERS: &str = "members that newer cores removed from system modules";

/// Members that earlier cores do not have: the owner as the core names it, the member, the first core with it.
const ADDED: [(&str, &str, &str); 9] = [
    ("module 'crypto'", "blake3", "0.10.0"),
    ("module 'datetime'", "validate", "0.10.0"),
    ("module 'file'", "current", "0.10.0"),
    ("module 'net'", "parse_CIDR", "0.11.1"),
    ("module 'net'", "is_IP_in_CIDR", "0.11.1"),
    ("module 'net'", "CIDR_subnet", "0.11.2"),
    ("module 'net'", "CIDR_host", "0.11.2"),
    ("module 'net'", "CIDR_netmask", "0.11.2"),
    ("str", "chars", "0.11.1"),
];

/// Members that later cores do not have: the owner, the member, the last core with it.
const REMOVED: [(&str, &str, &str); 1] = [("module 'net'", "to_IP16", "0.11.2")];

/// Modules that earlier cores do not have, each with the first core that has it.
const MODULES: [(&str, &str); 1] = [("base32", "0.11.2")];

/// Returns the cores that accept the code of this error; `None` if every core reports it or if that is unknown.
pub(super) fn range(diagnostic: &KclDiagnostic) -> Option<CoreRange> {
    let message = &diagnostic.message;
    if is_import_name_clash(diagnostic) {
        return Some(IMPORT_NAMES);
    }
    if message.starts_with("cannot reference private member '") {
        return Some(PRIVATE_MEMBERS);
    }
    if is_list_comparison(message) {
        return Some(UNEQUAL_LISTS);
    }
    if message.contains("escapes module root") {
        return Some(FAR_FILES);
    }
    if let Some((_, since)) = missing_module(message) {
        return Some(CoreRange::since(since, NEW_MEMBERS));
    }
    let (member, owner) = missing_member(message)?;
    match known_member(member, owner) {
        Some(range) => Some(range),
        None if hidden_import(diagnostic, member, owner).is_some() => Some(HIDDEN_IMPORTS),
        None => shadowed_module(diagnostic, owner).map(|_| SYSTEM_NAMES),
    }
}

/// Returns a hint if another version of the core would not report this error.
pub(super) fn hint(diagnostic: &KclDiagnostic) -> Option<String> {
    let message = &diagnostic.message;
    if message.starts_with("failed to access the file") && message.contains("No such file") {
        return Some(
            "cores since 0.13.1 start a relative path at the folder of the file that reads it, earlier ones at the \
             repository's root: write the path for the core that `kcl.version` in konverge.yaml names"
                .to_owned(),
        );
    }
    let range = range(diagnostic)?;
    Some(match range {
        IMPORT_NAMES => format!(
            "cores since 0.10.2 refuse one import name for two packages in the files of one package: give one of the \
             imports another name (`import … as OTHER`), or, if the package is not yours, {}",
            try_core("0.10.0")
        ),
        PRIVATE_MEMBERS => format!(
            "cores since 0.13.1 refuse members of another package that begin with `_`: give them names without it, or {}",
            try_core("0.13.0")
        ),
        HIDDEN_IMPORTS => {
            let hidden = missing_member(message)
                .and_then(|(member, owner)| hidden_import(diagnostic, member, owner))?;
            format!(
                "if `{hidden}` is an import of this file: cores since 0.10.2 take it for the attribute `{hidden}` around it; \
                 import it under another name (`import … as OTHER`), or {}",
                try_core("0.10.0")
            )
        }
        UNEQUAL_LISTS => format!(
            "cores before 0.12.5 do not compare lists by `!=`: write `not (A == B)`, or {}",
            try_core(DEFAULT_VERSION)
        ),
        FAR_FILES => format!(
            "cores before 0.13.1 read files outside of the folder of the program: {}",
            try_core("0.13.0")
        ),
        SYSTEM_NAMES => {
            let module = missing_member(message).and_then(|(_, owner)| shadowed_module(diagnostic, owner))?;
            format!(
                "if `import {module}.…` means a folder of the repository: cores since 0.13.0 take it for the system \
                 module `{module}`; give the folder another name, or {}",
                try_core("0.12.5")
            )
        }
        CoreRange {
            since: Some(since), ..
        } => {
            let what = match (missing_module(message), missing_member(message)) {
                (Some((module, _)), _) => format!("the module `{module}`"),
                (None, member) => format!("`{}`", member?.0),
            };
            format!("cores before {since} lack {what}: {}", try_core(DEFAULT_VERSION))
        }
        CoreRange { until, .. } => {
            let (last, (member, _)) = (until?, missing_member(message)?);
            format!("cores after {last} lack `{member}`: {}", try_core(last))
        }
    })
}

fn try_core(version: &str) -> String {
    format!("try `kcl.version: {version}` in konverge.yaml")
}

/// Returns true if a package has two imports with the same name. Other errors are often consequences of this one.
pub(super) fn is_import_name_clash(diagnostic: &KclDiagnostic) -> bool {
    let is_import = |line: &String| line.starts_with("import ");
    diagnostic.message.ends_with("must be defined only once")
        && diagnostic.source.as_ref().is_some_and(is_import)
}

/// Returns true for `unsupported operand type(s) for !=: '[any]' and '[str(a)]'`.
fn is_list_comparison(message: &str) -> bool {
    let operands = message.strip_prefix("unsupported operand type(s) for !=: '[");
    operands.is_some_and(|operands| operands.contains("]' and '["))
}

/// Returns a hint if another version of the core would not crash in this way.
pub(super) fn hint_of_crash(why: &str) -> Option<String> {
    why.contains("non-unwinding panic").then(|| {
        "the cores from 0.10.0 to 0.11.0 stop like this when a built-in function fails, without a position: try \
         `kcl.version: 0.11.1` or a later one in konverge.yaml"
            .to_owned()
    })
}

/// Parses `attribute 'chars' not found in 'str(a)'` or `attribute 'blake3' not found in 'module 'crypto''` into the
/// member and its owner.
fn missing_member(message: &str) -> Option<(&str, &str)> {
    let (member, owner) = message
        .strip_prefix("attribute '")?
        .split_once("' not found in '")?;
    Some((member, owner.strip_suffix('\'')?))
}

/// Returns true if the owner in a message is `known`. The core names a string with its value: `str(a)`.
fn is_owner(owner: &str, known: &str) -> bool {
    owner == known || known == "str" && owner.starts_with("str(")
}

/// Returns the missing module, with the first core that has it.
fn missing_module(message: &str) -> Option<(&'static str, &'static str)> {
    let is_it = |(module, _): &(&str, &str)| message.contains(&format!("pkgpath {module} not found"));
    MODULES.into_iter().find(is_it)
}

/// Returns the cores that have a member which only some of them have.
fn known_member(member: &str, owner: &str) -> Option<CoreRange> {
    let row = |(of, name, _): &&(&str, &str, &str)| *name == member && is_owner(owner, of);
    let added = ADDED.iter().find(row);
    let removed = || REMOVED.iter().find(row);
    added
        .map(|(.., since)| CoreRange::since(since, NEW_MEMBERS))
        .or_else(|| removed().map(|(.., last)| CoreRange::until(last, OLD_MEMBERS)))
}

/// Returns the name of an import that an attribute of the same name hides, as in `metadata.__META_APP_NAME` inside an
/// attribute `metadata`. The member begins with `_`, which is unusual for a schema.
fn hidden_import<'a>(diagnostic: &'a KclDiagnostic, member: &str, owner: &str) -> Option<&'a str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !member.starts_with('_') || !owner.chars().all(is_word) {
        return None;
    }
    let line = diagnostic.source.as_deref()?;
    let before = &line[..line.find(&format!(".{member}"))?];
    let start = before.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
    Some(&before[start..]).filter(|name| !name.is_empty() && !before[..start].ends_with('.'))
}

/// Returns the system module that an import loads instead of a folder: since 0.13.0 `import math.x` is the system
/// module `math`, even if there is a folder `math`. The line in the error contains only the last part of the import.
fn shadowed_module<'a>(diagnostic: &KclDiagnostic, owner: &'a str) -> Option<&'a str> {
    let module = owner.strip_prefix("module '")?.strip_suffix('\'')?;
    let line = diagnostic.source.as_deref()?;
    (SYSTEM_MODULES.contains(&module) && !line.contains(&format!("{module}."))).then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(message: &str, source: &str) -> Option<String> {
        hint(&KclDiagnostic {
            code: None,
            name: "TypeError".to_owned(),
            message: message.to_owned(),
            place: None,
            source: Some(source.to_owned()),
            at_line_start: false,
            related: Vec::new(),
            hints: Vec::new(),
        })
    }

    #[test]
    fn an_error_that_another_core_would_not_give_names_that_core() {
        for (message, core) in [
            ("path '../a.txt' escapes module root '/r'", "0.13.0"),
            ("pkgpath base32 not found in the program", "0.13.2"),
            ("attribute 'blake3' not found in 'module 'crypto''", "0.13.2"),
            ("attribute 'parse_CIDR' not found in 'module 'net''", "0.13.2"),
            ("attribute 'chars' not found in 'str(a)'", "0.13.2"),
            ("attribute 'chars' not found in 'str'", "0.13.2"),
            ("attribute 'to_IP16' not found in 'module 'net''", "0.11.2"),
            (
                "cannot reference private member '__META_APP_NAME' from module 'base.metadata'",
                "0.13.0",
            ),
            (
                "unsupported operand type(s) for !=: '[any]' and '[Port]'",
                "0.13.2",
            ),
        ] {
            let hint = hints(message, "a = crypto.x + net.x").unwrap_or_default();
            assert!(
                hint.contains(&format!("try `kcl.version: {core}`")),
                "{message}: {hint}"
            );
        }
        let data = hints(
            "failed to access the file 'a.txt': No such file or directory (os error 2)",
            "",
        );
        assert!(data.is_some_and(|hint| hint.contains("0.13.1")));
        assert!(hint_of_crash("signal: 6 (SIGABRT) thread caused non-unwinding panic. aborting.").is_some());
    }

    #[test]
    fn other_errors_name_no_core() {
        for message in [
            "expected int, got str(b)",
            "attribute 'sqr' not found in 'module 'math''",
            "attribute 'chars' not found in 'int'",
            "attribute 'blake3' not found in 'A'",
            "unsupported operand type(s) for !=: '{str(a):int(1)}' and '[int(1)]'",
            "Can not change the value of 'a', because it was declared immutable",
            // It follows from an import name that stands for two packages, and no other core is meant.
            "attribute 'WorkloadBase' not found in 'module 'service.container''",
        ] {
            assert_eq!(hints(message, "a = math.sqr(2)"), None, "{message}");
        }
        assert_eq!(hint_of_crash("signal: 11"), None);
    }

    #[test]
    fn a_folder_that_a_system_module_hides_is_told() {
        let hint = hints("attribute 'a' not found in 'module 'math''", "b = x.a").unwrap_or_default();
        assert!(
            hint.contains("`import math.…`") && hint.contains("0.12.5"),
            "{hint}"
        );
    }

    #[test]
    fn an_import_name_for_two_packages_names_the_last_core_that_takes_it() {
        let message = "the name 'c' is defined multiple times, 'c' must be defined only once";
        let hint = hints(message, "import container as c").unwrap_or_default();
        assert!(
            hint.contains("`import … as OTHER`") && hint.contains("try `kcl.version: 0.10.0`"),
            "{hint}"
        );
        // A schema that is defined twice is refused by every core.
        assert_eq!(hints(message, "schema c:"), None);
    }

    #[test]
    fn an_import_that_an_attribute_hides_is_told() {
        let message = "attribute '__META_APP_NAME' not found in 'ObjectMeta'";
        let hint = hints(message, "name = metadata.__META_APP_NAME + \"-\"").unwrap_or_default();
        assert!(
            hint.contains("if `metadata` is an import") && hint.contains("0.10.0"),
            "{hint}"
        );
        assert_eq!(
            hints("attribute 'name' not found in 'Server'", "a = config.name"),
            None
        );
        assert_eq!(
            hints("attribute '_x' not found in 'Server'", "a = b.config._x"),
            None
        );
    }

    #[test]
    fn a_range_names_cores_that_can_be_installed() {
        let versions = super::super::versions();
        let ranges = [
            IMPORT_NAMES,
            PRIVATE_MEMBERS,
            HIDDEN_IMPORTS,
            UNEQUAL_LISTS,
            FAR_FILES,
            SYSTEM_NAMES,
        ];
        let of_tables = ADDED.iter().chain(&REMOVED).map(|(.., version)| *version);
        let all = ranges
            .iter()
            .flat_map(|range| [range.since, range.until])
            .flatten();
        for version in all
            .chain(of_tables)
            .chain(MODULES.iter().map(|(_, version)| *version))
        {
            assert!(versions.contains(&version), "{version}");
        }
    }
}
