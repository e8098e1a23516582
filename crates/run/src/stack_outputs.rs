//! Passes outputs between stacks: puts the values that a stack reads into its Spec before the stack is planned.
//!
//! A value comes from the state of the stack that writes it, and only while that stack is applied at this revision.
//! Otherwise the value is *known after apply*: a preview shows that, and an apply waits for the writing stack.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value};

use crate::{
    OpenRevision, Planner, SpecSource, Target, compiler::Compilers, other_stack_claims::PlanPurpose,
    plan_error::PlanError,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId,
        reference::Targets,
        resolve::KnownValue,
        spec::{Resource, RuntimeKind, Spec},
        stack::Stack,
        stack_output::{self, FilledTexts, MARK, OutputFill, OutputId, OutputName, RecordedRead, StackReads},
    },
};
use konverge_config::Config;
use konverge_secrets::{Secrets, mask_resource};
use konverge_state::Versioned;

/// A Spec with the output values that the stack reads, and the outputs that it publishes.
#[derive(Default)]
pub(crate) struct FilledSpec {
    /// The Spec, with a value in the place of each `$stack_output` mark.
    pub spec: Spec,
    /// The outputs that the stack publishes: each is a value, or a text with references.
    pub outputs: BTreeMap<OutputName, Value>,
    /// The values that were read from other stacks.
    pub read: Vec<RecordedRead>,
    /// The filled text for each text that had marks.
    pub filled: FilledTexts,
    /// Notes for the preview.
    pub notes: Vec<String>,
}

/// The purpose for which values are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputUse {
    /// Only Specs are compared: every value is unknown, and no state is read.
    Names,
    /// A plan that is only shown: a value is unknown if its writer has changes in the same change.
    Show,
    /// A comparison with the last apply, or a rollback: recorded values are used.
    Recorded,
    /// A restore of the last apply: recorded values are used, if they are still those of that apply.
    Restore,
    /// A plan to apply: the apply waits while a value is unknown.
    Apply,
}

impl OutputUse {
    /// Returns the purpose for a plan of a target.
    pub(crate) fn for_plan(purpose: PlanPurpose<'_>, target: &Target, rolls_back: bool) -> Self {
        match purpose {
            PlanPurpose::Show { .. } => Self::Show,
            PlanPurpose::Drift => Self::Recorded,
            PlanPurpose::Apply if rolls_back => Self::Recorded,
            PlanPurpose::Apply if target.recorded.is_some() => Self::Restore,
            PlanPurpose::Apply => Self::Apply,
        }
    }

    /// Returns true if every value must be known.
    fn needs_values(self) -> bool {
        matches!(self, Self::Recorded | Self::Restore | Self::Apply)
    }
}

/// Puts the output values of other stacks into the Spec of a target.
///
/// # Errors
/// A mark is invalid or at a forbidden path; a stack or an output does not exist, or the target may not read it. For an
/// apply: a value is not known yet ([`PlanError::is_held_back`]).
pub(crate) async fn fill(
    planner: &Planner,
    target: &Target,
    spec: Spec,
    usage: OutputUse,
    applied_with: &[RecordedRead],
) -> Result<FilledSpec, PlanError> {
    let outputs = published(&spec)?;
    let reader = target.rules();
    let wanted = reader.map(|reader| wanted_outputs(planner.secrets(), reader, &spec));
    let wanted = wanted.transpose()?.filter(|wanted| !wanted.is_empty());
    let (Some(reader), Some(wanted)) = (reader, wanted) else {
        return Ok(FilledSpec {
            spec,
            outputs,
            ..FilledSpec::default()
        });
    };
    let SpecSource::Compiled { head, compilers, .. } = &planner.wanted else {
        let what = "the Spec reads outputs of other stacks, which only a stack of the repository can do";
        return Err(UserError::new(ErrorKind::Spec, what)
            .hint("give the values in the file, or preview and apply the stack by its name")
            .into());
    };
    let declared = DeclaredReads {
        config: &planner.config,
        head,
        compilers,
        reader,
    };
    let mut lookup = OutputLookup {
        planner,
        declared,
        usage,
        documents: BTreeMap::new(),
    };
    let mut found = FoundOutputs::default();
    for (writer, names) in &by_writer(&wanted) {
        lookup.find(writer, names, &mut found).await?;
    }
    // An apply never guesses a value, because exactly what a reviewer approved must be applied.
    if usage.needs_values() && !found.awaited.is_empty() {
        return Err(held_back(&found.awaited));
    }
    // A restore must not bring a changed output value, because such a change is not drift.
    let moved = moved_since(&found.read, applied_with);
    if usage == OutputUse::Restore && !moved.is_empty() {
        return Err(moved_error(&moved).into());
    }
    let (spec, filled) = with_values(reader, spec, &found.known)?;
    Ok(FilledSpec {
        spec,
        outputs,
        filled,
        notes: found.notes(&moved),
        read: found.read,
    })
}

/// Checks the outputs that a stack publishes and reads, without a store and a cluster.
///
/// # Errors
/// See [`fill`], except errors that need the states.
pub async fn check(
    head: &OpenRevision,
    compilers: &Compilers,
    secrets: &Secrets,
    reader: &Stack,
    spec: &Spec,
) -> Result<(), UserError> {
    published(spec)?;
    let declared = DeclaredReads {
        config: &head.config,
        head,
        compilers,
        reader,
    };
    for writer in reader.reads.values() {
        declared.permitted(writer)?;
    }
    for (writer, names) in &by_writer(&wanted_outputs(secrets, reader, spec)?) {
        let spec = compilers
            .for_revision(head)
            .spec(declared.permitted(writer)?)
            .await?;
        let published = published(&spec)?;
        if let Some(name) = names.iter().find(|name| !published.contains_key(**name)) {
            let output = OutputId {
                stack: (*writer).clone(),
                name: (*name).clone(),
            };
            return Err(unpublished(reader, &output, published.keys()));
        }
    }
    Ok(())
}

/// A Spec with output values that the user provides.
pub struct GivenOutputs {
    /// The Spec. An output without a provided value is unknown.
    pub spec: Spec,
    /// The outputs without a provided value, as `ALIAS.NAME`.
    pub missing: BTreeSet<String>,
    /// The provided values that the Spec does not read, as `ALIAS.NAME`.
    pub unused: BTreeSet<String>,
}

/// Puts output values that the user provides, by `ALIAS.NAME`, into a Spec.
///
/// # Errors
/// See [`fill`], as far as the error follows from the Spec and the `reads` of its stack.
pub fn fill_given(
    secrets: &Secrets,
    stack: &Stack,
    spec: &Spec,
    given: &BTreeMap<String, Value>,
) -> Result<GivenOutputs, UserError> {
    let wanted = wanted_outputs(secrets, stack, spec)?;
    let (mut known, mut missing) = (BTreeMap::new(), BTreeSet::new());
    let mut unused: BTreeSet<String> = given.keys().cloned().collect();
    for (alias, writer) in &stack.reads {
        for output in wanted.iter().filter(|output| output.stack == *writer) {
            let name = format!("{alias}.{}", output.name);
            unused.remove(&name);
            match given.get(&name) {
                Some(value) => drop(known.insert(output.clone(), value.clone())),
                None => drop(missing.insert(name)),
            }
        }
    }
    let (spec, _) = with_values(stack, spec.clone(), &known)?;
    Ok(GivenOutputs {
        spec,
        missing,
        unused,
    })
}

/// Puts the known values in the place of the marks of a Spec. Also returns the filled text for each text that had
/// marks.
fn with_values(
    reader: &Stack,
    mut spec: Spec,
    known: &BTreeMap<OutputId, Value>,
) -> Result<(Spec, FilledTexts), UserError> {
    let mut fill = OutputFill {
        reads: &reader.reads,
        known,
        filled: FilledTexts::new(),
    };
    for resource in &mut spec.resources {
        let of_resource = |error| misplaced(reader, &resource.id, &error);
        resource.attributes = fill.fill(&resource.attributes).map_err(of_resource)?;
    }
    Ok((spec, fill.filled))
}

/// Replaces every mark of a Spec by an unknown value, for a comparison of Specs. An invalid mark is left as it is.
pub fn without_values(reads: Option<&StackReads>, mut spec: Spec) -> Spec {
    let none = StackReads::new();
    let mut fill = OutputFill {
        reads: reads.unwrap_or(&none),
        known: &BTreeMap::new(),
        filled: FilledTexts::new(),
    };
    for resource in &mut spec.resources {
        if let Ok(attributes) = fill.fill(&resource.attributes) {
            resource.attributes = attributes;
        }
    }
    spec
}

/// Returns the outputs that a Spec publishes.
///
/// # Errors
/// A name is invalid, or a value comes from another stack.
pub fn published(spec: &Spec) -> Result<BTreeMap<OutputName, Value>, UserError> {
    let outputs = spec
        .outputs()
        .map_err(|error| UserError::from_error(ErrorKind::Spec, error))?;
    if outputs.is_empty() {
        return Ok(outputs);
    }
    let bodies: BTreeMap<_, _> = spec
        .resources
        .iter()
        .map(|resource| (&resource.id, Value::Object(resource.attributes.clone())))
        .collect();
    let targets: Targets = bodies.keys().copied().collect();
    let known = |id: &ResourceId| bodies.get(id).map_or(KnownValue::Nothing, KnownValue::Expected);
    for (name, value) in &outputs {
        let one = Map::from_iter([("value".to_owned(), value.clone())]);
        // An invalid reference is reported by the plan.
        let written = targets.resolve(&one, &|_| false, &known);
        if written.is_ok_and(|written| written.values().any(stack_output::holds_mark)) {
            let what = format!("the output `{name}` is copied from an output of another stack");
            return Err(UserError::new(ErrorKind::Spec, what)
                .hint("let other stacks read the output from the stack that publishes it first"));
        }
    }
    Ok(outputs)
}

/// Returns the outputs that the Spec of a stack reads.
fn wanted_outputs(secrets: &Secrets, stack: &Stack, spec: &Spec) -> Result<BTreeSet<OutputId>, UserError> {
    let mut wanted = BTreeSet::new();
    for resource in &spec.resources {
        let beside = resource.extensions.values().any(stack_output::holds_mark);
        if beside || resource.depends_on.iter().any(|id| id.as_str().contains(MARK)) {
            let why = "an output of another stack can be read only in `attributes`, not in `extensions` or `dependsOn`";
            return Err(misplaced(stack, &resource.id, &why));
        }
        if !resource.attributes.values().any(stack_output::holds_mark)
            && !resource.attributes.keys().any(|key| key.contains(MARK))
        {
            continue;
        }
        // The mark itself is no secret. To see whether a value at its path would be masked, a plain text replaces it.
        let plain = resource.with(plain_map(&resource.attributes));
        let masked = mask_resource(secrets, &plain).attributes;
        let mut marks = MarkCollector {
            resource,
            reads: &stack.reads,
            wanted: &mut wanted,
        };
        marks
            .in_map(&resource.attributes, Some(&masked), "")
            .map_err(|why| misplaced(stack, &resource.id, &why))?;
    }
    Ok(wanted)
}

/// The text that replaces a mark, to check whether a value at its path would be masked.
const PLAIN_TEXT: &str = "a-value-of-another-stack";

fn plain_text(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains(MARK) => Value::from(PLAIN_TEXT),
        Value::Array(items) => items.iter().map(plain_text).collect(),
        Value::Object(map) => Value::Object(plain_map(map)),
        other => other.clone(),
    }
}

fn plain_map(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .map(|(key, value)| (key.clone(), plain_text(value)))
        .collect()
}

/// Collects the references of a resource to outputs of other stacks, and rejects one at a path where none is allowed.
struct MarkCollector<'a> {
    resource: &'a Resource,
    reads: &'a StackReads,
    wanted: &'a mut BTreeSet<OutputId>,
}

impl MarkCollector<'_> {
    fn in_map(
        &mut self,
        map: &Map<String, Value>,
        shown: Option<&Map<String, Value>>,
        path: &str,
    ) -> Result<(), String> {
        for (key, value) in map {
            if key.contains(MARK) {
                return Err(format!(
                    "`{path}`: an output of another stack can be a value, but not a key"
                ));
            }
            let shown = shown.and_then(|shown| shown.get(key));
            self.in_value(value, shown, &format!("{path}/{key}"))?;
        }
        Ok(())
    }

    fn in_value(&mut self, value: &Value, shown: Option<&Value>, path: &str) -> Result<(), String> {
        match value {
            Value::String(text) if text.contains(MARK) => {
                if shown.and_then(Value::as_str) != Some(PLAIN_TEXT) {
                    return Err(format!(
                        "`{path}` is a masked field, where an output of another stack could not be reviewed"
                    ));
                }
                if self.resource.runtime == RuntimeKind::Kubernetes && is_identity(path) {
                    return Err(format!(
                        "`{path}` identifies the object, so it cannot be an output of another stack"
                    ));
                }
                for mark in stack_output::marks(text).map_err(|error| format!("`{path}`: {error}"))? {
                    let stack = self.reads.get(&mark.alias);
                    let stack = stack.ok_or_else(|| {
                        format!(
                            "`{path}`: {}",
                            stack_output::OutputError::Undeclared(mark.alias.clone())
                        )
                    })?;
                    self.wanted.insert(OutputId {
                        stack: stack.clone(),
                        name: mark.name,
                    });
                }
                Ok(())
            }
            Value::Array(items) => {
                let shown = shown.and_then(Value::as_array);
                for (at, item) in items.iter().enumerate() {
                    let shown = shown.and_then(|shown| shown.get(at));
                    self.in_value(item, shown, &format!("{path}/{at}"))?;
                }
                Ok(())
            }
            Value::Object(map) => self.in_map(map, shown.and_then(Value::as_object), path),
            _ => Ok(()),
        }
    }
}

/// Returns true for a path that identifies the object, or whose value Konverge itself reads.
fn is_identity(path: &str) -> bool {
    ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"].contains(&path)
        || path.starts_with("/metadata/annotations/konverge/")
}

fn misplaced(stack: &Stack, resource: &ResourceId, why: &dyn std::fmt::Display) -> UserError {
    UserError::new(ErrorKind::Spec, format!("`{resource}`: {why}"))
        .at(stack.manifest.to_string(), None, None)
        .hint("`reads: {db: PROJECT/STACK}` in stack.yaml declares a stack, and `$stack_output.db.NAME` reads a value of it")
}

fn by_writer<'o>(
    wanted: impl IntoIterator<Item = &'o OutputId>,
) -> BTreeMap<&'o StackId, BTreeSet<&'o OutputName>> {
    let mut writers: BTreeMap<&StackId, BTreeSet<&OutputName>> = BTreeMap::new();
    for output in wanted {
        writers.entry(&output.stack).or_default().insert(&output.name);
    }
    writers
}

/// The output values that were found.
#[derive(Default)]
struct FoundOutputs {
    known: BTreeMap<OutputId, Value>,
    read: Vec<RecordedRead>,
    awaited: BTreeSet<OutputId>,
}

impl FoundOutputs {
    /// Returns one sentence for each stack whose outputs are read, and for each value that changed.
    fn notes(&self, moved: &BTreeSet<OutputId>) -> Vec<String> {
        let list = |names: BTreeSet<&OutputName>| {
            let names: Vec<_> = names.into_iter().map(OutputName::as_str).collect();
            names.join(", ")
        };
        let of_known = by_writer(self.known.keys()).into_iter();
        let of_known = of_known.map(|(writer, names)| format!("reads {} of {writer}", list(names)));
        let of_awaited = by_writer(&self.awaited).into_iter().map(|(writer, names)| {
            let names = list(names);
            format!("reads {names} of {writer}: known after {writer} is applied, which comes first")
        });
        let of_moved = moved.iter().map(|output| {
            format!(
                "an output that it reads has changed since it was applied: {} of {}",
                output.name, output.stack
            )
        });
        of_known.chain(of_awaited).chain(of_moved).collect()
    }
}

/// Looks up output values for one stack.
struct OutputLookup<'a> {
    planner: &'a Planner,
    declared: DeclaredReads<'a>,
    usage: OutputUse,
    /// The states, each read once. So a value comes from the document that was checked, even if another run writes the
    /// state in the meantime.
    documents: BTreeMap<StackId, Option<Arc<Versioned>>>,
}

impl OutputLookup<'_> {
    async fn find(
        &mut self,
        writer: &StackId,
        names: &BTreeSet<&OutputName>,
        found: &mut FoundOutputs,
    ) -> Result<(), UserError> {
        let DeclaredReads {
            head,
            compilers,
            reader,
            ..
        } = self.declared;
        let stack = self.declared.permitted(writer)?;
        let prior = match self.usage {
            OutputUse::Names => None,
            _ => self.document(writer).await?,
        };
        let is_applied = match self.usage {
            OutputUse::Recorded | OutputUse::Restore => true,
            _ => prior.is_some() && self.is_applied(writer).await?,
        };
        for name in names {
            let output = OutputId {
                stack: writer.clone(),
                name: (*name).clone(),
            };
            let prior = prior.as_deref().filter(|_| is_applied);
            if let Some((prior, value)) =
                prior.and_then(|prior| Some((prior, prior.state.outputs.get(*name)?)))
            {
                self.accept(&output, prior, value, found)?;
                continue;
            }
            let published = published(&compilers.for_revision(head).spec(stack).await?)?;
            if !published.contains_key(*name) {
                return Err(unpublished(reader, &output, published.keys()));
            }
            found.awaited.insert(output);
        }
        Ok(())
    }

    /// Returns the state of a stack. The first read is cached.
    async fn document(&mut self, stack: &StackId) -> Result<Option<Arc<Versioned>>, UserError> {
        if let Some(known) = self.documents.get(stack) {
            return Ok(known.clone());
        }
        let found = self.planner.recorded(stack).await?.map(Arc::new);
        self.documents.insert(stack.clone(), found.clone());
        Ok(found)
    }

    /// Returns true if a stack is applied at the revision, and every output that it reads, directly or through other
    /// stacks, still has the value of that apply.
    async fn is_applied(&mut self, stack: &StackId) -> Result<bool, UserError> {
        let DeclaredReads { head, compilers, .. } = self.declared;
        let mut open = vec![stack.clone()];
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let (Some(stack), Some(prior)) = (head.layout.stack(&id), self.document(&id).await?) else {
                return Ok(false);
            };
            let state = &prior.state;
            // Another input digest may still give the same Spec, so the digests of the Specs are compared.
            if state.input_digest != Some(head.analysis.input_digest(stack)?) {
                let spec = compilers.for_revision(head).spec(stack).await?;
                if state.spec_digest != Some(spec.digest()) {
                    return Ok(false);
                }
            }
            for read in &state.reads {
                let writer = self.document(&read.output.stack).await?;
                let now = writer
                    .as_ref()
                    .and_then(|writer| writer.state.outputs.get(&read.output.name));
                if now.is_none_or(|now| now.digest != read.digest) {
                    return Ok(false);
                }
                open.push(read.output.stack.clone());
            }
        }
        Ok(true)
    }

    fn accept(
        &self,
        output: &OutputId,
        prior: &Versioned,
        value: &stack_output::RecordedOutput,
        found: &mut FoundOutputs,
    ) -> Result<(), UserError> {
        // The value may have become secret after it was published, because of a new masking rule.
        if self.planner.secrets().mask_value(&value.value) != value.value {
            let what = format!("{output} is a secret, so no other stack may read it");
            return Err(UserError::new(ErrorKind::Secret, what)
                .at(self.declared.reader.manifest.to_string(), None, None)
                .hint("refer to the secret in a secret store instead: `ref+STORE://PATH`"));
        }
        found.read.push(RecordedRead {
            output: output.clone(),
            digest: value.digest.clone(),
            serial: prior.serial,
            epoch: prior.epoch,
        });
        found.known.insert(output.clone(), value.value.clone());
        Ok(())
    }
}

/// The declared `reads` of a stack, with the revision that has the stack.
#[derive(Clone, Copy)]
struct DeclaredReads<'a> {
    config: &'a Config,
    head: &'a OpenRevision,
    compilers: &'a Compilers,
    reader: &'a Stack,
}

impl<'a> DeclaredReads<'a> {
    /// Returns the stack that writes an output, if it exists and the reader may read it.
    fn permitted(&self, writer: &StackId) -> Result<&'a Stack, UserError> {
        let place = |failure: UserError| failure.at(self.reader.manifest.to_string(), None, None);
        let Some(stack) = self.head.layout.stack(writer) else {
            let what = format!("`reads`: there is no stack `{writer}` to read outputs of");
            return Err(place(UserError::new(ErrorKind::Spec, what))
                .hint("`konverge list` shows the stacks; a renamed one is declared by its new name"));
        };
        if let Some(circle) = self.circle() {
            let names: Vec<_> = circle.iter().map(|stack| stack.as_str()).collect();
            let what = format!("these stacks read each other's outputs: {}", names.join(" → "));
            return Err(place(UserError::new(ErrorKind::Spec, what)).hint("remove one of these `reads`"));
        }
        if !self.config.may_read_outputs(stack, self.reader) {
            let what = format!(
                "`{}` may not read outputs of {writer}: they are not of one project and one environment",
                self.reader.id
            );
            let rule = format!(
                "allow these reads in konverge.yaml on the default branch: `outputs: {{allow: [{{from: '{}', to: '{}'}}]}}`",
                stack.folder, self.reader.folder
            );
            return Err(place(UserError::new(ErrorKind::Policy, what)).hint(rule));
        }
        Ok(stack)
    }

    /// Returns the circle of stacks that read each other, if the reader is part of one. The reader is first and last.
    fn circle(&self) -> Option<Vec<&'a StackId>> {
        let reader = &self.reader.id;
        // Maps each stack to the stack through which it was reached.
        let mut by: BTreeMap<&StackId, &StackId> = BTreeMap::new();
        let mut open = vec![reader];
        while let Some(at) = open.pop() {
            for writer in self.head.layout.stack(at)?.reads.values() {
                if writer == reader {
                    let mut circle = vec![reader, at];
                    while let Some(before) = circle.last().and_then(|last| by.get(last)) {
                        circle.push(before);
                    }
                    circle.reverse();
                    return Some(circle);
                }
                if self.head.layout.stack(writer).is_some() && !by.contains_key(writer) {
                    by.insert(writer, at);
                    open.push(writer);
                }
            }
        }
        None
    }
}

fn unpublished<'a>(
    reader: &Stack,
    output: &OutputId,
    names: impl Iterator<Item = &'a OutputName>,
) -> UserError {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let there = if names.is_empty() {
        "it publishes nothing".to_owned()
    } else {
        format!("it publishes {}", names.join(", "))
    };
    let what = format!("{} does not publish `{}`: {there}", output.stack, output.name);
    UserError::new(ErrorKind::Spec, what)
        .at(reader.manifest.to_string(), None, None)
        .hint("`konverge/outputs: {NAME: PATH}` in the extensions of a resource publishes a value of it")
}

/// Returns the outputs whose values differ from those at the last apply of the stack.
pub(crate) fn moved_since(read: &[RecordedRead], applied_with: &[RecordedRead]) -> BTreeSet<OutputId> {
    let is_other = |read: &&RecordedRead| {
        let mut earlier = applied_with
            .iter()
            .filter(|earlier| earlier.output == read.output);
        earlier.any(|earlier| earlier.digest != read.digest)
    };
    let moved = read.iter().filter(is_other);
    moved.map(|read| read.output.clone()).collect()
}

pub(crate) fn moved_error(moved: &BTreeSet<OutputId>) -> UserError {
    let outputs = moved
        .iter()
        .map(|output| format!("{} of {}", output.name, output.stack));
    let outputs = outputs.collect::<Vec<_>>().join(", ");
    let what = format!("an output that it reads has changed since it was applied: {outputs}");
    UserError::new(ErrorKind::Policy, what).hint(
        "apply the stack instead: the apply asks for an approval of its digest, because nobody reviewed the new value",
    )
}

fn held_back(awaited: &BTreeSet<OutputId>) -> PlanError {
    let outputs: Vec<_> = awaited.iter().map(OutputId::to_string).collect();
    let stacks: BTreeSet<_> = awaited.iter().map(|output| output.stack.clone()).collect();
    let what = format!(
        "the stack reads {}, which is not applied yet as this commit defines it",
        outputs.join(", ")
    );
    let error = UserError::new(ErrorKind::Policy, what)
        .hint("the next run applies the stack, after the one whose output it reads");
    PlanError {
        is_held_back: true,
        ..PlanError::awaiting(error, stacks)
    }
}

/// Returns an error if a stack is removed although others were applied with its outputs.
///
/// # Errors
/// The error has the stacks that read the outputs ([`PlanError::waits_for`]).
pub(crate) async fn check_removal(
    planner: &Planner,
    target: &Target,
    purpose: PlanPurpose<'_>,
) -> Result<(), PlanError> {
    let Some(backend) = planner.backend.as_ref().filter(|_| target.head.is_none()) else {
        return Ok(());
    };
    let reads_it = |stack: &StackId| match (&planner.wanted, purpose) {
        // A reader that is destroyed too, or no longer declares the read at the head, is applied before this stack is
        // removed.
        (SpecSource::Compiled { head, .. }, PlanPurpose::Show { leaving }) => {
            let declares = head.layout.stack(stack);
            let declares = declares.is_none_or(|stack| stack.reads.values().any(|read| *read == target.id));
            declares && !leaving.contains(stack)
        }
        _ => true,
    };
    let known = backend.states.known().await?;
    let readers = known.entries.iter().filter(|(id, entry)| {
        **id != target.id
            && entry.is_known()
            && entry.reads.iter().any(|read| read.output.stack == target.id)
            && !planner.claims.without.contains(*id)
    });
    let mut readers: BTreeSet<StackId> = readers.map(|(id, _)| id.clone()).filter(reads_it).collect();
    if matches!(purpose, PlanPurpose::Apply) {
        // The index was read at the start of the run and may be outdated, so the newest states of the readers decide.
        for reader in readers.clone() {
            let now = backend.states.load(&reader).await?;
            let reads = now.is_some_and(|now| {
                !now.retired && now.state.reads.iter().any(|read| read.output.stack == target.id)
            });
            if !reads {
                readers.remove(&reader);
            }
        }
    }
    if readers.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = readers.iter().map(StackId::as_str).collect();
    let what = format!(
        "{} read outputs of {}, which would be removed",
        names.join(", "),
        target.id
    );
    let error = UserError::new(ErrorKind::Policy, what).hint(
        "remove the stack from their `reads` first, or confirm with `--without STACK` for each of them",
    );
    Err(PlanError::awaiting(error, readers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, secrets, stack};
    use serde_json::json;

    /// `web/prod` reads outputs of `db/prod` as `db`.
    fn reader() -> Stack {
        Stack {
            reads: [("db".parse().unwrap(), id("db/prod"))].into(),
            ..stack("web/prod")
        }
    }

    fn spec(resource: Value) -> Spec {
        Spec {
            resources: vec![serde_json::from_value(resource).unwrap()],
            ..Spec::default()
        }
    }

    fn config_map(change: impl FnOnce(&mut Value)) -> Spec {
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "web"},
            "data": {"note": "plain"},
        });
        change(&mut object);
        spec(json!({"id": "v1:ConfigMap:web:web", "type": "Kubernetes", "attributes": object}))
    }

    fn wanted(spec: &Spec) -> Result<Vec<String>, String> {
        let found = wanted_outputs(&secrets(), &reader(), spec).map_err(|error| error.message)?;
        Ok(found.iter().map(OutputId::to_string).collect())
    }

    fn output(name: &str) -> OutputId {
        OutputId {
            stack: id("db/prod"),
            name: name.parse().unwrap(),
        }
    }

    fn read(name: &str, digest: &str) -> RecordedRead {
        RecordedRead {
            output: output(name),
            digest: digest.to_owned(),
            serial: 1,
            epoch: 1,
        }
    }

    #[test]
    fn an_output_is_read_wherever_a_reviewer_sees_it() {
        let twice = config_map(|object| {
            object["data"]["note"] = json!("host $stack_output.db.host");
            object["data"]["list"] = json!("$stack_output.db.port and $stack_output.db.host");
        });
        let found = wanted(&twice).unwrap();
        assert_eq!(found, [output("host").to_string(), output("port").to_string()]);
        assert_eq!(wanted(&config_map(|_| {})), Ok(vec![]));
    }

    #[test]
    fn an_output_in_a_place_where_nobody_could_review_it_is_refused() {
        let mark = || json!("$stack_output.db.host");
        for (change, why) in [
            (
                Box::new(|object: &mut Value| object["metadata"]["name"] = mark())
                    as Box<dyn FnOnce(&mut Value)>,
                "identifies the object",
            ),
            (
                Box::new(|object| object["kind"] = mark()),
                "identifies the object",
            ),
            (
                Box::new(|object| object["metadata"]["annotations"] = json!({"konverge/order": mark()})),
                "identifies the object",
            ),
            (
                Box::new(|object| object["data"] = json!({"$stack_output.db.host": "x"})),
                "but not a key",
            ),
            (
                Box::new(|object| object["data"]["password"] = mark()),
                "is a masked field",
            ),
            (
                Box::new(|object| object["data"]["note"] = json!("$stack_output.other.host")),
                "other",
            ),
        ] {
            let refused = wanted(&config_map(change)).unwrap_err();
            assert!(
                refused.starts_with("`v1:ConfigMap:web:web`: ") && refused.contains(why),
                "{why}: {refused}"
            );
        }
        let secret = spec(json!({
            "id": "v1:Secret:web:web", "type": "Kubernetes",
            "attributes": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "web"},
                           "stringData": {"note": mark()}},
        }));
        assert!(wanted(&secret).unwrap_err().contains("is a masked field"));
        for (field, value) in [
            ("extensions", json!({"note": mark()})),
            ("dependsOn", json!(["a:b:$stack_output.db.host"])),
        ] {
            let mut resource =
                json!({"id": "hashicorp:random:random_pet:web", "type": "Terraform", "attributes": {}});
            resource[field] = value;
            let refused = wanted(&spec(resource)).unwrap_err();
            assert!(refused.contains("only in `attributes`"), "{field}: {refused}");
        }
    }

    #[test]
    fn a_value_that_is_given_by_hand_is_used_missed_or_unused() {
        let spec = config_map(|object| {
            object["data"]["note"] = json!("$stack_output.db.host:$stack_output.db.port");
        });
        let given = [
            ("db.host".to_owned(), json!("db.example")),
            ("db.user".to_owned(), json!("app")),
        ];
        let filled = fill_given(&secrets(), &reader(), &spec, &given.into()).unwrap();
        assert_eq!(filled.missing, ["db.port".to_owned()].into());
        assert_eq!(filled.unused, ["db.user".to_owned()].into());
        let both = [
            ("db.host".to_owned(), json!("db.example")),
            ("db.port".to_owned(), json!(5432)),
        ];
        let filled = fill_given(&secrets(), &reader(), &spec, &both.into()).unwrap();
        assert_eq!(
            filled.spec.resources[0].attributes["data"]["note"],
            "db.example:5432"
        );
        assert!(filled.missing.is_empty() && filled.unused.is_empty());
    }

    /// A stack must not hand on what another one published: a reader of both would be allowed by the wrong one.
    #[test]
    fn an_output_of_another_stack_is_not_published_again() {
        let publishing = |value: Value| {
            let mut spec = config_map(|object| object["data"]["host"] = value);
            let path = json!({"host": "data.host"});
            spec.resources[0]
                .extensions
                .insert(stack_output::OUTPUTS_KEY.to_owned(), path);
            published(&spec)
        };
        let own = publishing(json!("web.example")).unwrap();
        assert_eq!(own.keys().map(OutputName::as_str).collect::<Vec<_>>(), ["host"]);
        let copied = publishing(json!("$stack_output.db.host")).unwrap_err();
        assert!(copied.message.contains("the output `host` is copied"), "{copied}");
    }

    #[test]
    fn only_a_plan_that_is_shown_may_have_unknown_values() {
        let target = Target::new(&reader(), None);
        let leaving = BTreeSet::new();
        let recorded = Target {
            recorded: Some(Arc::new(crate::target::RecordedSpec {
                spec: Spec::default(),
                input_digest: konverge_base::model::Digest::of_set([]),
                commit: None,
                core: None,
            })),
            ..target.clone()
        };
        for (purpose, target, rolls_back, usage, needs_values) in [
            (
                PlanPurpose::Show { leaving: &leaving },
                &target,
                false,
                OutputUse::Show,
                false,
            ),
            (PlanPurpose::Drift, &target, false, OutputUse::Recorded, true),
            (PlanPurpose::Apply, &target, false, OutputUse::Apply, true),
            (PlanPurpose::Apply, &target, true, OutputUse::Recorded, true),
            (PlanPurpose::Apply, &recorded, false, OutputUse::Restore, true),
        ] {
            let found = OutputUse::for_plan(purpose, target, rolls_back);
            assert!(found == usage && found.needs_values() == needs_values);
        }
        assert!(!OutputUse::Names.needs_values());
    }

    #[test]
    fn a_value_moved_if_its_last_apply_had_another_one() {
        let applied = [read("host", "a"), read("port", "b")];
        let now = [read("host", "a"), read("port", "c"), read("new", "d")];
        assert_eq!(moved_since(&now, &applied), [output("port")].into());
        assert_eq!(
            moved_since(&now, &[]),
            BTreeSet::new(),
            "nothing was applied with it"
        );
        let refused = moved_error(&[output("port")].into());
        assert_eq!(refused.kind, ErrorKind::Policy);
        assert!(refused.message.ends_with("port of db/prod"), "{refused}");
    }

    #[test]
    fn an_apply_that_waits_says_for_which_outputs() {
        let refused = held_back(&[output("host"), output("port")].into());
        assert_eq!(refused.error.kind, ErrorKind::Policy);
        for name in ["host", "port"] {
            assert!(
                refused.error.message.contains(&output(name).to_string()),
                "{}",
                refused.error
            );
        }
    }
}
