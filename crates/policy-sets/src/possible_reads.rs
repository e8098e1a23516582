//! Decides which unknown values a rule may read, by the words in its source.
//!
//! A rule that reads a value mentions its key or a parent key, or iterates over a whole value ([`reads_whole`]). So
//! a rule whose source does neither cannot read the value. The check errs in one direction only: a rule may mention
//! the word and never read the value, and is then called undecided without need. It is never called decided
//! although it reads the value in one of these ways.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_base::model::{FieldPath, plan_document::DocumentResource, spec::RuntimeKind};

/// Words by which a rule may read values without naming their keys: functions that traverse a value, and the list
/// of changes, which contains every value.
const READ_ALL: [&str; 6] = [
    "walk",
    "marshal",
    "marshal_with_options",
    "reachable",
    "reachable_paths",
    "changes",
];
/// Texts of several tokens that also read values without naming their keys: the keys of an object, and any value two
/// levels below a name.
const READ_ALL_TEXTS: [&str; 2] = ["object.keys", "[_][_]"];

/// Names that rules use for a whole resource or document.
const ROOTS: [&str; 5] = ["after", "values", "object", "input", "resource"];
/// CEL's macros that iterate.
const LOOPS: [&str; 9] = [
    "exists",
    "exists_one",
    "existsOne",
    "all",
    "map",
    "filter",
    "transformList",
    "transformMap",
    "transformMapEntry",
];
/// Rego functions that accept a whole value and read all of it.
const TAKE_WHOLE: [&str; 7] = [
    "sprintf",
    "json.filter",
    "json.remove",
    "json.patch",
    "object.filter",
    "object.remove",
    "object.union",
];
/// Keywords, which cannot be the first name of a reference.
const KEYWORDS: [&str; 10] = [
    "in", "some", "every", "not", "if", "with", "as", "contains", "default", "else",
];

/// The words that occur in the source of rules.
#[derive(Debug, Clone, Default)]
pub(super) struct Mentions {
    words: BTreeSet<String>,
    reads_all: bool,
}

impl Mentions {
    /// Adds the words of a source: identifiers, and the parts of its string literals.
    pub(super) fn add(&mut self, source: &str) {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let words = source
            .split(|c: char| !is_word(c))
            .filter(|word| !word.is_empty());
        for word in words {
            // `a-b` may be one key or a subtraction, so the whole and the parts count.
            for word in std::iter::once(word).chain(word.split('-')) {
                self.reads_all |= READ_ALL.contains(&word);
                self.words.insert(word.to_owned());
            }
        }
        let dense: String = source.chars().filter(|c| !c.is_whitespace()).collect();
        self.reads_all |= READ_ALL_TEXTS.iter().any(|text| dense.contains(text)) || reads_whole(source);
    }

    /// Adds the words of all strings and keys in a value.
    pub(super) fn add_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_texts(item)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                self.add(key);
                self.add_texts(value);
            }),
            _ => {}
        }
    }

    /// Adds the words of another source.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.reads_all |= other.reads_all;
        self.words.extend(other.words.iter().cloned());
    }

    /// Returns true if a rule may read the value at a path of a resource.
    pub(super) fn may_read(&self, runtime: RuntimeKind, path: &FieldPath) -> bool {
        // The Terraform attribute `id` is ignored. Most rules contain the word `id`, because the plan document has
        // a key `id` for the resource's id, so the word does not show that the attribute is read.
        if runtime == RuntimeKind::Terraform && *path == "/id" {
            return false;
        }
        // An empty path means the whole value, which has no key to search for.
        if self.reads_all || path.is_root() {
            return true;
        }
        let keys = path.components();
        let keys = keys.filter(|component| component.parse::<usize>().is_err());
        let keys: Vec<_> = keys.collect();
        keys.iter().rev().take(2).any(|key| self.has(key))
    }

    /// Returns true if the rule may read an unknown value of the resource.
    pub(super) fn may_read_unknown(&self, resource: &DocumentResource) -> bool {
        let mut paths = resource.unknown.iter();
        paths.any(|path| self.may_read(resource.runtime, path))
    }

    /// Returns true if the source contains this word.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Returns true if the source contains all words of a key: `app.kubernetes.io/name` has several.
    fn has(&self, key: &str) -> bool {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let mut parts = key.split(|c: char| !is_word(c)).filter(|part| !part.is_empty());
        parts.all(|part| self.words.contains(part))
    }
}

/// Returns true if a source may read all of a value without naming keys: it iterates over it, indexes it by a
/// computed name, compares it, or passes it to such a function. Aliases of a whole value (`x := r.after`) count
/// too.
fn reads_whole(source: &str) -> bool {
    let source = Source::read(source);
    let references: Vec<_> = (0..source.tokens.len())
        .filter_map(|at| source.reference(at))
        .collect();
    let aliases: BTreeSet<_> = references.iter().filter_map(|one| source.alias(one)).collect();
    let taken = source.taken(&references);
    references
        .iter()
        .any(|one| source.goes_through(one, &aliases, &taken))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'s> {
    Word(&'s str),
    Text(&'s str),
    Mark(char),
    Line,
}

/// A step of a reference. Both `.a` and `["b"]` are names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'s> {
    Name(&'s str),
    Number,
    /// An index by a variable.
    Variable,
    Other,
}

/// A reference such as `input.resources[_].after`.
struct Reference<'s> {
    steps: Vec<Step<'s>>,
    start: usize,
    /// The index of the token after the reference.
    end: usize,
}

/// The tokens of a source, with matched brackets.
struct Source<'s> {
    tokens: Vec<Token<'s>>,
    /// For each opening bracket, the index of the token that closes it.
    closes: Vec<usize>,
}

impl<'s> Source<'s> {
    fn read(source: &'s str) -> Self {
        let (mut tokens, mut rest) = (Vec::new(), source);
        while let Some(c) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let (token, length) = match c {
                '\n' => (Some(Token::Line), 1),
                '#' => (None, rest.find('\n').unwrap_or(rest.len())),
                c if is_word(c) => {
                    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                    (Some(Token::Word(&rest[..end])), end)
                }
                '"' | '\'' | '`' => match text_end(rest, c) {
                    Some(end) => (Some(Token::Text(&rest[1..end])), end + 1),
                    None => (Some(Token::Mark(c)), 1),
                },
                c if c.is_whitespace() => (None, c.len_utf8()),
                c => (Some(Token::Mark(c)), c.len_utf8()),
            };
            tokens.extend(token);
            rest = &rest[length..];
        }
        let mut closes = vec![tokens.len(); tokens.len()];
        let mut open = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                Token::Mark('(' | '[' | '{') => open.push(at),
                Token::Mark(')' | ']' | '}') => {
                    if let Some(opened) = open.pop() {
                        closes[opened] = at;
                    }
                }
                _ => {}
            }
        }
        Self { tokens, closes }
    }

    fn at(&self, at: usize) -> Option<Token<'s>> {
        self.tokens.get(at).copied()
    }

    /// Returns the token that is `places` before the token `at`.
    fn before(&self, at: usize, places: usize) -> Option<Token<'s>> {
        self.at(at.checked_sub(places)?)
    }

    /// Returns the index of the next token from `at` that is not a line break.
    fn beyond_lines(&self, mut at: usize) -> usize {
        while self.at(at) == Some(Token::Line) {
            at += 1;
        }
        at
    }

    /// Parses the reference that begins at a token.
    fn reference(&self, start: usize) -> Option<Reference<'s>> {
        let Some(Token::Word(word)) = self.at(start) else {
            return None;
        };
        let continues = matches!(self.before(start, 1), Some(Token::Mark('.')))
            || matches!(
                (self.before(start, 2), self.before(start, 1)),
                (Some(Token::Mark('.')), Some(Token::Mark('?')))
            );
        if continues || KEYWORDS.contains(&word) {
            return None;
        }
        let (mut steps, mut end) = (vec![Step::Name(word)], start + 1);
        loop {
            let dot = self.beyond_lines(end);
            if self.at(dot) == Some(Token::Mark('.')) {
                let optional = usize::from(self.at(dot + 1) == Some(Token::Mark('?')));
                let name = self.beyond_lines(dot + 1 + optional);
                let Some(Token::Word(word)) = self.at(name) else {
                    break;
                };
                steps.push(Step::Name(word));
                end = name + 1;
            } else if self.at(end) == Some(Token::Mark('[')) {
                let close = self.closes[end];
                let inner = self.tokens.get(end + 1..close).unwrap_or_default();
                steps.push(match inner {
                    [Token::Text(name)] | [Token::Mark('?'), Token::Text(name)] => Step::Name(name),
                    [Token::Word(word)] if word.parse::<usize>().is_ok() => Step::Number,
                    [Token::Word(_)] => Step::Variable,
                    _ => Step::Other,
                });
                end = (close + 1).min(self.tokens.len());
            } else {
                break;
            }
        }
        Some(Reference { steps, start, end })
    }

    /// Returns the alias that a statement gives to a whole value: `x := r.after`, `import input as x`.
    fn alias(&self, one: &Reference<'s>) -> Option<&'s str> {
        if !is_root(one.steps.last()?) {
            return None;
        }
        if let (Some(Token::Word("as")), Some(Token::Word(name))) = (self.at(one.end), self.at(one.end + 1)) {
            return Some(name);
        }
        let ends = matches!(
            self.at(one.end),
            None | Some(Token::Line | Token::Mark(';' | '}' | '|' | ']'))
        );
        let before = |places| self.before(one.start, places);
        match (before(3), before(2), before(1)) {
            (Some(Token::Word(name)), Some(Token::Mark(':')), Some(Token::Mark('=')))
            | (_, Some(Token::Word(name)), Some(Token::Mark('=')))
                if ends =>
            {
                Some(name)
            }
            _ => None,
        }
    }

    /// Returns for each token if it is inside the arguments of a function that reads whole values.
    fn taken(&self, references: &[Reference<'s>]) -> Vec<bool> {
        let mut changes = vec![0_i32; self.tokens.len() + 1];
        for one in references {
            let names = one.steps.iter().filter_map(|step| match step {
                Step::Name(name) => Some(*name),
                _ => None,
            });
            let name = names.collect::<Vec<_>>().join(".");
            if self.at(one.end) == Some(Token::Mark('(')) && TAKE_WHOLE.contains(&name.as_str()) {
                changes[one.end] += 1;
                changes[self.closes[one.end]] -= 1;
            }
        }
        let depths = changes.into_iter().scan(0, |depth, change| {
            *depth += change;
            Some(*depth > 0)
        });
        depths.collect()
    }

    fn goes_through(&self, one: &Reference<'s>, aliases: &BTreeSet<&str>, taken: &[bool]) -> bool {
        let steps = one.steps.as_slice();
        // Data and parameters are always known before the apply.
        if matches!(
            steps,
            [Step::Name("data" | "params"), ..] | [_, Step::Name("parameters"), ..]
        ) {
            return false;
        }
        let is_whole = |at: usize| {
            let named = at == 0 && matches!(steps[0], Step::Name(name) if aliases.contains(name));
            named || is_root(&steps[at])
        };
        let is_call = self.at(one.end) == Some(Token::Mark('('));
        let within = (1..steps.len()).any(|at| match steps[at] {
            Step::Variable if steps[at - 1] == Step::Variable => true,
            Step::Variable | Step::Other => is_whole(at - 1),
            Step::Name(name) => is_call && at + 1 == steps.len() && LOOPS.contains(&name) && is_whole(at - 1),
            Step::Number => false,
        });
        if within || is_call || !is_whole(steps.len() - 1) {
            return within;
        }
        let before = |places| self.before(one.start, places);
        let next = self.beyond_lines(one.end);
        if before(1) == Some(Token::Word("in")) {
            // In CEL, `'key' in resource.after && …` only checks for one key, and does not iterate.
            let goes_on = matches!(self.at(next), Some(Token::Mark('&' | '|' | '?')));
            return !(goes_on && matches!(before(2), Some(Token::Text(_))));
        }
        if taken[one.start] && matches!(self.at(next), Some(Token::Mark(',' | ')' | ']' | '}'))) {
            return true;
        }
        let compares =
            |first, second| second == Some(Token::Mark('=')) && matches!(first, Some(Token::Mark('=' | '!')));
        let null = Some(Token::Word("null"));
        matches!(steps.last(), Some(Step::Name("after" | "object")))
            && (compares(self.at(next), self.at(next + 1)) && self.at(self.beyond_lines(next + 2)) != null
                || compares(before(2), before(1)) && before(3) != null)
    }
}

fn is_root(step: &Step<'_>) -> bool {
    matches!(step, Step::Name(name) if ROOTS.contains(name))
}

/// Returns the offset of the quote that closes the text at the start of `rest`.
fn text_end(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            c if c == quote => return Some(at),
            '\n' if quote != '`' => return None,
            '\\' if quote != '`' => escaped = true,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_the_key_around_it_counts() {
        let mut mentions = Mentions::default();
        mentions.add("input.after.spec.containers[_].image; labels[k] == \"x\"; a[\"app.io/tier\"]");
        let reads = |path: &str| mentions.may_read(RuntimeKind::Kubernetes, &path.into());
        assert!(reads("/spec/containers/0/image"));
        assert!(reads("/metadata/labels/team"));
        assert!(reads("/x/app.io~1tier"));
        assert!(!reads("/spec/template/hostname"));
        assert!(!reads("/metadata/app.io~1other"));
        mentions.add("walk(input, [path, value])");
        assert!(mentions.may_read(RuntimeKind::Kubernetes, &"/spec/template/hostname".into()));
    }

    #[test]
    fn what_reads_without_a_key_reads_all() {
        for source in [
            "some c in r.changes; endswith(c.to, \":latest\")",
            "count(object.keys(r.after)) > 3",
            "x := input.spec[_] [_]",
            "json.marshal(r.after)",
        ] {
            let mut mentions = Mentions::default();
            mentions.add(source);
            assert!(
                mentions.may_read(RuntimeKind::Terraform, &"/acl".into()),
                "{source}"
            );
        }
        let mut mentions = Mentions::default();
        mentions.add("r.after.max_size-r.after.min_size > 10");
        assert!(mentions.may_read(RuntimeKind::Terraform, &"/max_size".into()));
        assert!(!mentions.may_read(RuntimeKind::Terraform, &"/size".into()));
        assert!(mentions.may_read(RuntimeKind::Terraform, &"".into()));
    }

    #[test]
    fn the_id_of_a_terraform_resource_does_not_count() {
        let mut mentions = Mentions::default();
        mentions.add("r.id; r.after.region");
        assert!(!mentions.may_read(RuntimeKind::Terraform, &"/id".into()));
        assert!(mentions.may_read(RuntimeKind::Terraform, &"/region".into()));
        assert!(mentions.may_read(RuntimeKind::Kubernetes, &"/id".into()));
    }

    #[test]
    fn what_one_source_reads_is_read_by_both() {
        let (mut own, mut other, mut all) = (Mentions::default(), Mentions::default(), Mentions::default());
        own.add("r.after.region");
        other.add("r.after.zone");
        own.add_all(&other);
        let reads = |mentions: &Mentions, path: &str| mentions.may_read(RuntimeKind::Terraform, &path.into());
        assert!(reads(&own, "/region") && reads(&own, "/zone") && !reads(&own, "/acl"));
        all.add("walk(r.after)");
        own.add_all(&all);
        assert!(reads(&own, "/acl"));
        own.add_all(&other);
        assert!(reads(&own, "/acl"));
    }

    /// The source mentions neither the key nor its parent, but iterates over the whole value.
    #[test]
    fn what_goes_through_a_whole_value_reads_all() {
        for source in [
            "some k, v in input.resources[_].after; v == \"public-read\"",
            "some v in object\n",
            "deny contains k if { some k, v in input.review.object }",
            "x := {v | some v in r[\"after\"]}",
            "every _, v in r.after { v != \"a\" }",
            "\"public-read\" in r.change.after",
            "r.after[k] == \"public-read\"",
            "r.change.after[_] == \"public-read\"",
            "r[\"after\"][k] == 1",
            "input[i].x",
            "object[concat(\"\", [\"a\", \"cl\"])] == 1",
            "input.spec[i][j] == 1",
            "resource.after.exists(k, resource.after[k] == 'x')",
            "object.all(k, v, v != 'x')",
            "resource.after\n  .exists_one(k, true)",
            "object.?spec.hasValue() && object.map(k, k).size() > 1",
            "resource.after.filter(k, k == 'x').size() == 0",
            "sprintf(\"%v\", [input])",
            "msg := sprintf(\"%s %v\", [r.id, r.change.after])",
            "json.filter(r.after, [p])",
            "json.remove(input, [\"a\"])",
            "object.filter(r.after, keys)",
            "object.union(r.change.after, {\"x\": 1})",
            "x := r.change.after\nx[_] == \"public-read\"",
            "import input as tfplan\ndeny contains \"m\" if tfplan[k]",
            "r.change.after != r.change.before",
            "object == oldObject",
            "resource.?after.all(k, v, v != 'x')",
            "x := `a\\`\nsome k, v in r.after",
        ] {
            let mut mentions = Mentions::default();
            mentions.add(source);
            assert!(
                mentions.may_read(RuntimeKind::Terraform, &"/acl".into()),
                "{source}"
            );
        }
    }

    #[test]
    fn usual_rules_read_what_they_name() {
        for source in [
            "some r in input.resource_changes\nr.type == \"x\"",
            "some r in input.resources; r.after.x == 1",
            "some c in input.review.object.spec.containers",
            "input.spec.template.spec.containers[_].image",
            "input.spec.containers[i].image",
            "input[\"spec\"].containers[0][\"image\"]",
            "object.get(r.after, \"tags\", {})",
            "r.change.after.tags.owner",
            "x := r.change.after",
            "x := r.change.after\nx.tags.owner == \"a\"",
            "x := r.change.after - other\nx[k] == 1",
            "x := r.change.after[\"tags\"]; x[_] == 1",
            "r.after == null; null != r.change.after",
            "resource.after == null || has(resource.after.tags)",
            "'tags' in resource.after && resource.after.tags.size() > 0",
            "object.spec.containers.all(c, c.image != 'x')",
            "plan.resources.filter(r, r.action == 'delete').size() < 2",
            "sprintf(\"%s in %s\", [input.metadata.name, r.address])",
            "data.allowed[kind][name]",
            "input.parameters.values[_]",
            "startswith(c.image, data.registries[_])",
            "msg := \"what is in object\"",
            "resource.kind in ['a', 'b']",
            "[c | c := input.spec.containers[_]]",
            "msg := sprintf(\"%s\", [r.id]); object.get(r.after, \"tags\", {})",
            "msg := `what\nis in object`",
            "x := `\\`; msg := `in object`",
            "msg := \"a \\\" in object\"",
        ] {
            let mut mentions = Mentions::default();
            mentions.add(source);
            assert!(
                !mentions.may_read(RuntimeKind::Terraform, &"/acl".into()),
                "{source}"
            );
        }
    }
}
