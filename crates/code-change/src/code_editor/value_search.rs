//! Finds the attribute that sets a field of the Spec: of the literals that equal the field's value, the one whose edit
//! changes this field and nothing else.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    CodeEditor, EditKind, EditPlace, EditedLine,
    attribute_edit::UnsetAttribute,
    program_files::ProgramFiles,
    spec_fields::{SpecField, WantedField, changes_within, image_name, images, is_image_reference},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{FieldPath, RepoPath, spec::Spec, stack::Stack, text::with_rest},
};
use konverge_kcl::{AssignedValue, AttributePath, literal};

/// The maximum number of attributes that are tried for one field.
const MOST_TRIED: usize = 50;

/// The result of the search for the attribute of a field: the edit that was found, and the wanted fields that still
/// need one. The error says that no attribute, or several attributes, change exactly this field.
pub(super) type FieldEdit = Result<(EditedLine, Vec<WantedField>), UserError>;

/// The maximum number of attributes that a message lists.
const MOST_NAMED: usize = 5;

/// The inputs of the trial edits for one field.
struct Trials<'t> {
    stack: &'t Stack,
    /// The wanted value, as a literal of KCL.
    text: &'t str,
    place: EditPlace,
    before: &'t Spec,
    /// The wanted fields. The search is for the attribute of the first one.
    fields: &'t [SpecField],
}

/// A trial edit that sets the wanted field, and changes no field outside of the wanted ones.
struct KeptEdit<'a> {
    trial: CodeEditor<'a>,
    line: EditedLine,
    /// The indices of the wanted fields that the edit sets to their values.
    changed: Vec<usize>,
}

impl<'a> CodeEditor<'a> {
    /// Sets the image `name` of a stack to another reference: edits the one attribute that changes exactly this image.
    /// `None` if the image already has the reference and no single attribute sets it.
    ///
    /// # Errors
    /// No container or several containers use the image; no attribute or several attributes change it alone.
    pub async fn set_image(
        &mut self,
        stack: &Stack,
        name: &str,
        reference: &str,
        place: EditPlace,
    ) -> Result<Option<EditedLine>, UserError> {
        if !is_image_reference(reference) {
            let what = format!("`{}` is not a reference of an image", reference.escape_debug());
            let failure = UserError::new(ErrorKind::Usage, what);
            let failure = self.at_image(failure, stack, name).await;
            return Err(failure
                .hint("write a reference such as `ghcr.io/example/storefront:2.5.0`; nothing was written"));
        }
        let before = self.spec(&stack.id).await?;
        let all = images(&before);
        let named: Vec<_> = all.iter().filter(|field| has_image(field, name)).collect();
        let place_of =
            |field: &SpecField| format!("{} {}", field.resource, field.path.as_str().escape_debug());
        let field = match named.as_slice() {
            [field] => *field,
            [] => {
                let mut known: Vec<_> = all
                    .iter()
                    .filter_map(|field| field.value.as_str())
                    .map(image_name)
                    .collect();
                known.sort_unstable();
                known.dedup();
                let failure = UserError::new(
                    ErrorKind::Usage,
                    format!(
                        "no container of {} has the image `{}`",
                        stack.id,
                        name.escape_debug()
                    ),
                );
                return Err(if known.is_empty() {
                    failure.hint("its Spec has no images")
                } else {
                    failure.hint(format!(
                        "its images are {}",
                        listed(known.iter().map(|known| format!("`{}`", known.escape_debug())))
                    ))
                });
            }
            several => {
                let what = format!(
                    "{} containers of {} have the image `{}`: {}",
                    several.len(),
                    stack.id,
                    name.escape_debug(),
                    listed(several.iter().map(|field| place_of(field)))
                );
                let failure = UserError::new(ErrorKind::Kcl, what);
                let failure = self.at_image(failure, stack, name).await;
                return Err(
                    failure.hint("nothing was written; name the attribute: `konverge set STACK PATH=VALUE`")
                );
            }
        };
        let wanted = SpecField {
            value: Value::from(reference),
            ..field.clone()
        };
        let current = field.value.clone();
        // The image already has the reference. The attribute is looked up nevertheless, to show where it is set.
        if wanted == *field {
            return self.line_of_image(stack, wanted, reference, place).await;
        }
        let wanted = WantedField {
            current,
            field: wanted,
        };
        let (line, _) = self
            .set_field(stack, &[wanted], place, UnsetAttribute::Refuse)
            .await??;
        Ok(Some(line))
    }

    /// Returns the attribute that sets an image which already has the wanted reference: the attribute that an edit to
    /// another reference would change. `None` if such an edit would be refused.
    async fn line_of_image(
        &self,
        stack: &Stack,
        mut field: SpecField,
        reference: &str,
        place: EditPlace,
    ) -> Result<Option<EditedLine>, UserError> {
        let current = std::mem::replace(&mut field.value, Value::from(another_reference(reference)));
        let literals = self.literals_of(stack, &current).await?;
        let wanted = [WantedField { current, field }];
        let mut trial = self.clone();
        let edit = trial.set_field(stack, &wanted, place, UnsetAttribute::Refuse);
        let Ok((mut line, _)) = edit.await? else {
            return Ok(None);
        };
        if let Some(found) = literals.into_iter().find(|found| found.path == line.path) {
            (line.file, line.line) = (found.file, found.line);
        }
        line.kind = EditKind::Unchanged;
        Ok(Some(line))
    }

    /// Adds to an error the position of the first literal of the image `name`, if there is one.
    async fn at_image(&mut self, mut failure: UserError, stack: &Stack, name: &str) -> UserError {
        let Ok(spec) = self.spec(&stack.id).await else {
            return failure;
        };
        for field in images(&spec).iter().filter(|field| has_image(field, name)) {
            if let Ok(literals) = self.literals_of(stack, &field.value).await {
                failure = at_first(failure, &literals);
            }
        }
        failure
    }

    /// Sets one of the fields in `wanted` to its value. The same edit may set other fields that come from the same
    /// attribute. Returns the edit and the remaining fields. `unset` says what happens with an attribute that no file
    /// sets.
    ///
    /// # Errors
    /// The value is no literal, or the stack does not compile.
    pub(super) async fn set_field(
        &mut self,
        stack: &Stack,
        wanted: &[WantedField],
        place: EditPlace,
        unset: UnsetAttribute,
    ) -> Result<FieldEdit, UserError> {
        let WantedField { field, current } = &wanted[0];
        let name = format!("{} {}", field.resource, field.path.as_str().escape_debug());
        let text = literal(&field.value).ok_or_else(|| {
            let what = format!("the value for {name} cannot be written as a literal of KCL");
            UserError::new(ErrorKind::Kcl, what)
        })?;
        let literals = self.literals_of(stack, current).await?;
        let tried: BTreeSet<_> = literals.iter().map(|found| found.path.clone()).collect();
        if tried.len() > MOST_TRIED {
            let what = format!(
                "{} attributes have the value of {name}, and at most {MOST_TRIED} are tried",
                tried.len()
            );
            let failure = at_first(UserError::new(ErrorKind::Kcl, what), &literals)
                .hint("set the attribute by its path; nothing was written");
            return Ok(Err(failure));
        }
        let before = self.spec(&stack.id).await?;
        let fields: Vec<_> = wanted.iter().map(|wanted| wanted.field.clone()).collect();
        let trials = Trials {
            stack,
            text: &text,
            place,
            before: &before,
            fields: &fields,
        };
        // Several attributes may have the same literal. Each is edited on trial, and the Specs show which one sets this
        // field.
        let mut kept = self.try_each(&trials, &tried, UnsetAttribute::Refuse).await?;
        if kept.is_empty() && unset == UnsetAttribute::Add {
            let names = self.unset_attributes(stack, &field.path).await?;
            if names.len() <= MOST_TRIED {
                kept = self.try_each(&trials, &names, unset).await?;
            }
        }
        let names = listed(
            literals
                .iter()
                .map(|found| format!("`{}` ({}:{})", found.path, found.file, found.line)),
        );
        let failure = match kept.len() {
            1 => {
                let KeptEdit { trial, line, changed } = kept.swap_remove(0);
                *self = trial;
                let left = wanted.iter().enumerate().filter(|(at, _)| !changed.contains(at));
                let left = left.map(|(_, field)| field.clone()).collect();
                return Ok(Ok((line, left)));
            }
            0 if tried.is_empty() => {
                let what = format!("no file of {} sets the value of {name} as a literal", stack.id);
                UserError::new(ErrorKind::Kcl, what).hint("the value may be computed: edit the code by hand")
            }
            0 => {
                let what = format!(
                    "no attribute of {} changes {name} alone; tried: {names}",
                    stack.id
                );
                at_first(UserError::new(ErrorKind::Kcl, what), &literals)
            }
            _ => {
                let places = kept.iter();
                let places = places
                    .map(|KeptEdit { line, .. }| format!("`{}` ({}:{})", line.path, line.file, line.line));
                let what = format!(
                    "several attributes of {} change {name}: {}",
                    stack.id,
                    listed(places)
                );
                UserError::new(ErrorKind::Kcl, what)
            }
        };
        Ok(Err(failure.hint(
            "nothing was written; set the attribute by its path: `konverge set STACK PATH=VALUE`",
        )))
    }

    /// Edits each of these attributes on trial. Returns the edits that set the first field and change no field outside
    /// of the wanted ones.
    async fn try_each(
        &self,
        trials: &Trials<'_>,
        paths: &BTreeSet<AttributePath>,
        unset: UnsetAttribute,
    ) -> Result<Vec<KeptEdit<'a>>, UserError> {
        let Trials {
            stack, text, place, ..
        } = *trials;
        let mut kept = Vec::new();
        for path in paths {
            self.run.check_interrupted()?;
            let mut trial = self.clone();
            let Ok(line) = trial.edit_attribute(stack, path, text, place, unset).await else {
                continue;
            };
            let Ok(after) = trial.spec(&stack.id).await else {
                continue;
            };
            let changed = changes_within(trials.before, &after, trials.fields);
            if let Some(changed) = changed.filter(|changed| changed.contains(&0)) {
                kept.push(KeptEdit { trial, line, changed });
            }
        }
        Ok(kept)
    }

    /// Returns the attributes that may set a field if no file sets them, such as a default of a schema: the name of the
    /// field, in each block of the stack's own files.
    async fn unset_attributes(
        &self,
        stack: &Stack,
        field: &FieldPath,
    ) -> Result<BTreeSet<AttributePath>, UserError> {
        let pool = &self.compilers.for_revision(&self.revisions.head).pool().await?;
        let files = ProgramFiles::read(&self.revisions.head, stack)?;
        let Some(name) = field.as_str().rsplit('/').next().filter(|name| !name.is_empty()) else {
            return Ok(BTreeSet::new());
        };
        let mut paths = BTreeSet::new();
        for file in self.parse_all(pool, &files.own).await? {
            let blocks = file.parsed.assignments.iter();
            let blocks = blocks.filter(|found| found.value == AssignedValue::Block);
            paths.extend(blocks.filter_map(|block| {
                let name = std::iter::once(name.to_owned());
                AttributePath::from_keys(block.path.keys().iter().cloned().chain(name).collect())
            }));
        }
        Ok(paths)
    }

    /// Returns the places at which the files of a stack and its base files set an attribute to a literal of this value.
    async fn literals_of(&self, stack: &Stack, value: &Value) -> Result<Vec<LiteralPlace>, UserError> {
        let pool = &self.compilers.for_revision(&self.revisions.head).pool().await?;
        let files = ProgramFiles::read(&self.revisions.head, stack)?;
        let mut found = Vec::new();
        for paths in [&files.own, &files.base] {
            for file in self.parse_all(pool, paths).await? {
                let equal =
                    file.parsed.assignments.into_iter().filter(
                        |at| matches!(&at.value, AssignedValue::Literal(Some(known)) if known == value),
                    );
                found.extend(equal.map(|at| LiteralPlace {
                    path: at.path,
                    file: file.path.clone(),
                    line: at.line,
                }));
            }
        }
        Ok(found)
    }
}

fn has_image(field: &SpecField, name: &str) -> bool {
    field
        .value
        .as_str()
        .is_some_and(|image| image_name(image) == name)
}

/// Returns a reference of the same form that differs in its last letter.
fn another_reference(reference: &str) -> String {
    let (last, other) = (
        reference.len().saturating_sub(1),
        if reference.ends_with('0') { '1' } else { '0' },
    );
    format!("{}{other}", &reference[..last])
}

/// A place that sets an attribute to a literal.
struct LiteralPlace {
    path: AttributePath,
    file: RepoPath,
    line: u32,
}

/// Adds to an error the first place that could have been edited; the stack's own files come first.
fn at_first(failure: UserError, literals: &[LiteralPlace]) -> UserError {
    match literals.first() {
        Some(found) if failure.location.is_none() => {
            failure.at(found.file.to_string(), Some(found.line), None)
        }
        _ => failure,
    }
}

fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    with_rest(names, MOST_NAMED).join(", ")
}
