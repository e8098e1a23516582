//! Sets one attribute of one stack: finds the one place that sets it to a literal, or the block to add it to.

use std::sync::Arc;

use super::{CodeEditor, EditKind, EditPlace, EditedLine, program_files::ProgramFiles};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, file_source::FileKind, stack::Stack},
};
use konverge_kcl::{AssignedValue, Assignment, AttributePath, Formatting, KclError, ParsedFile, Pool};

const UNTOUCHED: &str = "nothing was written";

/// The handling of an attribute that no file sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnsetAttribute {
    /// Refuse the edit, because the name of the attribute may be misspelled.
    Refuse,
    /// Add the attribute to the stack's own file. The Spec then shows whether this was the right attribute.
    Add,
}

/// A file of the program with its assignments.
pub(super) struct ProgramFile {
    pub path: RepoPath,
    text: String,
    pub parsed: ParsedFile,
}

impl CodeEditor<'_> {
    /// Sets an attribute of a stack to another value, a literal of KCL.
    ///
    /// # Errors
    /// The value is not a literal; no file or several places set the attribute; the present value is computed,
    /// conditional or a block; a file is a link or does not parse.
    pub async fn set_attribute(
        &mut self,
        stack: &Stack,
        path: &AttributePath,
        value: &str,
        place: EditPlace,
    ) -> Result<EditedLine, UserError> {
        self.edit_attribute(stack, path, value, place, UnsetAttribute::Refuse)
            .await
    }

    /// Sets an attribute as [`CodeEditor::set_attribute`] does. `unset` says what happens if no file sets the
    /// attribute.
    pub(super) async fn edit_attribute(
        &mut self,
        stack: &Stack,
        path: &AttributePath,
        value: &str,
        place: EditPlace,
        unset: UnsetAttribute,
    ) -> Result<EditedLine, UserError> {
        let value = value.trim();
        let pool = &self.compilers.for_revision(&self.revisions.head).pool().await?;
        let files = ProgramFiles::read(&self.revisions.head, stack)?;
        let paths = files.editable(place);
        if let Some(link) = ProgramFiles::link(&self.revisions.head, paths) {
            return Err(self.link_refused(pool, link, path).await);
        }
        let edited = self.parse_all(pool, paths).await?;
        let found = match assignments_of(&edited, path).as_slice() {
            [(file, at)] => Some((*file, *at)),
            [] => None,
            several => return Err(ambiguous(path, several)),
        };
        // Checked after the attribute was found, so that the error can show its position.
        if !pool.is_literal(value).await? {
            let what = format!("the value for `{path}` is not a literal of KCL");
            let failure = UserError::new(ErrorKind::Usage, what);
            let failure = match found {
                Some((file, at)) => failure.at(file.path.to_string(), Some(at.line), None),
                None => at_block(failure, &edited, path),
            };
            return Err(failure.hint(format!(
                "write a text with quotes inside the shell's quotes: `{path}='\"text\"'`; {UNTOUCHED}"
            )));
        }
        let edited_line = |file: &ProgramFile, line, kind| EditedLine {
            stack: stack.id.clone(),
            file: file.path.clone(),
            line,
            path: path.clone(),
            place,
            kind,
        };
        let (file, text, kind) = match found {
            Some((file, at)) if file.parsed.value_text(at) == value => {
                return Ok(edited_line(file, at.line, EditKind::Unchanged));
            }
            Some((file, at)) if at.is_literal() => (file, file.parsed.replace(at, value), EditKind::Replaced),
            Some((file, at)) => return Err(not_literal(path, file, at)),
            None => {
                let base = match place {
                    EditPlace::Stack => self.parse_all(pool, &files.base).await?,
                    EditPlace::Base => Vec::new(),
                };
                let (file, text) = add(stack, &edited, &base, (path, value), unset)?;
                (file, text, EditKind::Added)
            }
        };
        // The new text is parsed again, because the edit must not change anything else in the file.
        let (text, parsed) = check(pool, file, text, path, value).await?;
        let set = parsed.assignments.iter().find(|found| found.path == *path);
        let line = edited_line(file, set.map_or(1, |found| found.line), kind);
        self.edit(line.file.clone(), Arc::from(text.into_bytes()), place);
        Ok(line)
    }

    /// Returns the error for a file that is a link, at the line of the file to which the link leads.
    async fn link_refused(&self, pool: &Pool, link: &RepoPath, path: &AttributePath) -> UserError {
        let what = format!(
            "`{}` is a link, and only plain files are edited",
            link.as_str().escape_debug()
        );
        let failure = UserError::new(ErrorKind::Layout, what);
        let failure = failure.hint(format!("{UNTOUCHED}; edit the target of the link by hand"));
        let source = &self.revisions.head.source;
        let entry = source.files().get(link);
        let entry = entry.filter(|entry| entry.kind == FileKind::Symlink);
        let content = entry.and_then(|entry| source.read(entry.blob).ok());
        let text = content.and_then(|content| String::from_utf8(content.to_vec()).ok());
        let target = text.and_then(|text| link.parent()?.join(&text));
        let files = match target {
            Some(target) => self.parse_all(pool, &[target]).await.unwrap_or_default(),
            None => Vec::new(),
        };
        match assignments_of(&files, path).first() {
            Some((file, at)) => failure.at(file.path.to_string(), Some(at.line), None),
            None => failure.at(link.to_string(), None, None),
        }
    }

    pub(super) async fn parse_all(
        &self,
        pool: &Pool,
        paths: &[RepoPath],
    ) -> Result<Vec<ProgramFile>, UserError> {
        let mut files = Vec::new();
        for path in paths {
            let Some(content) = self.content(path)? else {
                continue;
            };
            let text = String::from_utf8(content.to_vec()).map_err(|_| {
                UserError::new(ErrorKind::Kcl, "the file is not UTF-8").at(path.to_string(), None, None)
            })?;
            let parsed = pool.parse(path, &text).await?;
            let path = path.clone();
            files.push(ProgramFile { path, text, parsed });
        }
        Ok(files)
    }
}

type EditPoint<'f> = (&'f ProgramFile, &'f Assignment);

/// Returns every assignment of an attribute.
fn assignments_of<'f>(files: &'f [ProgramFile], path: &AttributePath) -> Vec<EditPoint<'f>> {
    matching(files, |found| found.path == *path)
}

fn matching<'f>(files: &'f [ProgramFile], wanted: impl Fn(&Assignment) -> bool) -> Vec<EditPoint<'f>> {
    let mut found = Vec::new();
    for file in files {
        let all = file.parsed.assignments.iter().filter(|at| wanted(at));
        found.extend(all.map(|at| (file, at)));
    }
    found
}

/// Returns the stack's own file to which the attribute is added, with its new text. Only a base file sets it so far.
fn add<'f>(
    stack: &Stack,
    own: &'f [ProgramFile],
    base: &[ProgramFile],
    (path, value): (&AttributePath, &str),
    unset: UnsetAttribute,
) -> Result<(&'f ProgramFile, String), UserError> {
    let keys = path.keys();
    for files in [own, base] {
        let parts = matching(files, |found| {
            found.path.keys().len() > keys.len() && found.path.keys().starts_with(keys)
        });
        if let Some((file, part)) = parts.first().filter(|_| assignments_of(files, path).is_empty()) {
            let what = format!(
                "`{path}` is set in parts, such as `{}`: set these one by one",
                part.path
            );
            return Err(refused(what, file, part.line));
        }
    }
    let above = matching(own, |found| {
        found.value == AssignedValue::Computed && keys.starts_with(found.path.keys())
    });
    if let Some((file, at)) = above.first() {
        let what = format!("`{}`, which holds `{path}`, is computed", at.path);
        return Err(refused(what, file, at.line));
    }
    if unset == UnsetAttribute::Refuse && assignments_of(base, path).is_empty() {
        let failure = UserError::new(ErrorKind::Usage, format!("no file of {} sets `{path}`", stack.id));
        let mut failure = at_block(failure, own, path);
        let known = [own, base].map(|files| matching(files, |found| found.value != AssignedValue::Block));
        let known = known.iter().flatten().map(|(_, found)| found.path.to_string());
        let wanted = path.to_string();
        let nearest = known
            .map(|known| (strsim::damerau_levenshtein(&known, &wanted), known))
            .min();
        if let Some((_, known)) = nearest.filter(|(distance, _)| *distance <= wanted.len() / 2) {
            failure = failure.hint(format!("did you mean `{known}`?"));
        }
        return Err(failure.hint(format!(
            "write the attribute by hand once; later `konverge set` can change it; {UNTOUCHED}"
        )));
    }
    let Some((file, block)) = block(own, path) else {
        let what = format!(
            "the files of {} have no block to which `{path}` could be added",
            stack.id
        );
        let failure = at_block(UserError::new(ErrorKind::Kcl, what), own, path);
        return Err(failure.hint(format!(
            "the base sets this attribute: use `--in base` to change it for every stack of the project; {UNTOUCHED}"
        )));
    };
    let text = file.parsed.add(block, path, value);
    let text = text.ok_or_else(|| refused(format!("`{path}` cannot be written as KCL"), file, block.line))?;
    Ok((file, text))
}

/// Returns the innermost block to which an attribute could be added.
fn block<'f>(files: &'f [ProgramFile], path: &AttributePath) -> Option<EditPoint<'f>> {
    let blocks = files
        .iter()
        .filter_map(|file| Some((file, file.parsed.block_for(path)?)));
    blocks.max_by_key(|(_, block)| block.path.keys().len())
}

/// Adds a position to an error: the block to which the attribute could be added, or else the last file.
fn at_block(failure: UserError, files: &[ProgramFile], path: &AttributePath) -> UserError {
    match (block(files, path), files.last()) {
        (Some((file, block)), _) => failure.at(file.path.to_string(), Some(block.line), None),
        (None, Some(file)) => failure.at(file.path.to_string(), None, None),
        (None, None) => failure,
    }
}

/// Formats the edited text if the file was formatted before, and checks that the text sets nothing else.
async fn check(
    pool: &Pool,
    file: &ProgramFile,
    text: String,
    path: &AttributePath,
    value: &str,
) -> Result<(String, ParsedFile), UserError> {
    let changed_more = || {
        let what = format!("the edit of `{path}` would change more than its value");
        refused(what, file, 1)
    };
    let parsed = match pool.parse(&file.path, &text).await {
        Ok(parsed) => parsed,
        Err(KclError::Code(_)) => return Err(changed_more()),
        Err(other) => return Err(other.into()),
    };
    if !file.parsed.differs_only_at(&parsed, path, value) {
        return Err(changed_more());
    }
    // A file that was not formatted before keeps its layout. A file that the formatter would break is not formatted
    // either.
    if pool.formatting(&file.path, &file.text).await? != Formatting::Formatted {
        return Ok((text, parsed));
    }
    let Formatting::Unformatted(formatted) = pool.formatting(&file.path, &text).await? else {
        return Ok((text, parsed));
    };
    let parsed = pool.parse(&file.path, &formatted).await?;
    let set = parsed.assignments.iter().find(|found| found.path == *path);
    let value = set
        .map(|found| parsed.value_text(found).to_owned())
        .unwrap_or_default();
    if file.parsed.differs_only_at(&parsed, path, &value) {
        Ok((formatted, parsed))
    } else {
        Err(changed_more())
    }
}

fn refused(what: String, file: &ProgramFile, line: u32) -> UserError {
    UserError::new(ErrorKind::Kcl, what)
        .at(file.path.to_string(), Some(line), None)
        .hint(format!("{UNTOUCHED}; edit the file by hand"))
}

fn ambiguous(path: &AttributePath, places: &[EditPoint<'_>]) -> UserError {
    let names = places
        .iter()
        .map(|(file, at)| format!("{}:{}", file.path, at.line));
    let what = format!(
        "`{path}` is set in {} places: {}",
        places.len(),
        names.collect::<Vec<_>>().join(", ")
    );
    let (file, at) = places[0];
    refused(what, file, at.line)
}

fn not_literal(path: &AttributePath, file: &ProgramFile, at: &Assignment) -> UserError {
    let what = match at.value {
        AssignedValue::Block => format!("`{path}` is a block: set its attributes one by one"),
        AssignedValue::Conditional => format!("`{path}` is set under a condition"),
        AssignedValue::Computed | AssignedValue::Literal(_) => {
            format!("`{path}` is computed: it is not a literal")
        }
    };
    refused(what, file, at.line)
}
