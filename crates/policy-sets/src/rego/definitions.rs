//! The single definitions of a Rego rule. `deny` is the union of its definitions, so a finding of one definition is
//! certain if that definition reads no unknown value, whatever the other definitions read.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, Module, Ref, Rule, RuleHead};

use super::{
    engine::{PreparedEngine, RuleEngine, parsed},
    imports::with_full_calls,
};
use crate::{possible_reads::Mentions, rule::PolicyFile};
use konverge_config::RegoVersion;

/// The prefix of the names of the rules that Konverge adds, one for each definition, to evaluate it separately.
const NAME: &str = "konverge_definition_";

/// One definition of a rule.
pub(super) struct RegoDefinition {
    /// The path to query in the engine.
    pub path: String,
    /// The words of the definition, and of each rule that it can reach.
    pub mentions: Mentions,
}

/// The separate definitions of all rules of a set.
pub(super) struct Definitions {
    /// An engine in which each definition is also a separate rule. It is not evaluated in advance, because most
    /// sets never need it: so each of its few clones orders the statements once.
    pub engine: PreparedEngine,
    /// The definitions by the path of their rule.
    pub by_rule: BTreeMap<String, Vec<RegoDefinition>>,
    /// The words of each `exception` rule, by its path.
    pub exceptions: BTreeMap<String, Mentions>,
}

/// A file of the set after parsing.
struct Read<'m> {
    package: &'m str,
    module: &'m Module,
    text: &'m str,
}

impl Definitions {
    /// Finds the definitions of the rules at these paths. Returns `None` if they cannot be separated.
    pub(super) fn find(
        files: &[&PolicyFile],
        data: &[PolicyFile],
        version: RegoVersion,
        paths: &BTreeSet<&str>,
    ) -> Option<Self> {
        let modules: Vec<(String, Ref<Module>)> = files
            .iter()
            .map(|file| read_file(file, version))
            .collect::<Option<_>>()?;
        let reads: Vec<_> = modules
            .iter()
            .map(|(package, module)| Read {
                package,
                module,
                text: module.package.span.source.get_contents(),
            })
            .collect();
        let words = Words::of(&reads, data);
        let (mut by_rule, mut exceptions) = (BTreeMap::<String, Vec<RegoDefinition>>::new(), BTreeMap::new());
        let (mut texts, mut whole) = (Vec::new(), BTreeSet::new());
        for read in &reads {
            let mut text = read.text.to_owned();
            for rule in &read.module.policy {
                let Some((name, start, end)) = head_name(rule) else {
                    continue;
                };
                let path = format!("{}.{name}", read.package);
                let span = rule.span();
                // An exception silences other rules. The paths and words in its text show later whether these rules
                // are known for certain.
                if name == "exception" {
                    let mentions: &mut Mentions = exceptions.entry(path).or_default();
                    words.add_to(mentions, span.text());
                    continue;
                }
                if !paths.contains(path.as_str()) {
                    continue;
                }
                // Only definitions of a set (`deny contains …`) can be separated, because the rule is their union.
                let is_part = matches!(
                    &**rule,
                    Rule::Spec {
                        head: RuleHead::Set { .. },
                        ..
                    }
                );
                let (from, to) = (span.start as usize, span.end as usize);
                let parts = (read.text.get(from..start), read.text.get(end..to));
                let ((Some(before), Some(after)), true) = (parts, is_part) else {
                    // A definition of this form cannot be separated, so its rule is only evaluated as a whole.
                    whole.insert(path);
                    continue;
                };
                // The definition is added a second time, as a rule with a generated name. The value of that rule is
                // what this definition alone finds.
                let of_rule = by_rule.entry(path).or_default();
                let own = format!("{NAME}{}_{name}", of_rule.len());
                text += &format!("\n{before}{own}{after}\n");
                let mut mentions = Mentions::default();
                // The generated name must not count as a reference to the rule itself, so only the source after the
                // name is searched.
                words.add_to(&mut mentions, after);
                of_rule.push(RegoDefinition {
                    path: format!("{}.{own}", read.package),
                    mentions,
                });
            }
            texts.push(text);
        }
        by_rule.retain(|path, _| !whole.contains(path));
        let mut engine = RuleEngine::new(version, &texts.join("\n"));
        for (at, text) in texts.iter().enumerate() {
            engine.add_file(&format!("{at}.rego"), text).ok()?;
        }
        engine.add_data(data).ok()?;
        Some(Self {
            engine: PreparedEngine::new(engine),
            by_rule,
            exceptions,
        })
    }
}

/// Parses a Rego file. Returns the package name and the syntax tree, in which calls of imported functions have
/// their full paths; `None` if the file cannot be parsed.
fn read_file(file: &PolicyFile, version: RegoVersion) -> Option<(String, Ref<Module>)> {
    let mut engine = parsed(&file.path, &with_full_calls(&file.text), version).ok()?;
    let package = engine.get_packages().ok()?.into_iter().next()?;
    let module = engine.get_modules().first()?.clone();
    Some((package, module))
}

/// The source texts of all rules by name, and of all imports by their alias.
struct Words<'m> {
    texts: BTreeMap<&'m str, Vec<&'m str>>,
    data: &'m [PolicyFile],
}

impl<'m> Words<'m> {
    fn of(reads: &[Read<'m>], data: &'m [PolicyFile]) -> Self {
        let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for read in reads {
            for rule in &read.module.policy {
                if let (Some((_, start, end)), Some(span)) = (head_name(rule), Some(rule.span())) {
                    let name = read.text.get(start..end).unwrap_or_default();
                    texts
                        .entry(name)
                        .or_default()
                        .push(span_text(read.text, span.start, span.end));
                }
            }
            // An import without an alias needs no entry: its definition is found by its own name.
            for import in &read.module.imports {
                if let Some(name) = &import.r#as {
                    let name = span_text(read.text, name.start, name.end);
                    let text = span_text(read.text, import.span.start, import.span.end);
                    texts.entry(name).or_default().push(text);
                }
            }
        }
        Self { texts, data }
    }

    /// Adds the words of a definition, and of everything that it can reach by name.
    fn add_to(&self, mentions: &mut Mentions, definition: &str) {
        let mut reached = BTreeSet::new();
        let (mut open, mut source) = (vec![definition], String::new());
        while let Some(text) = open.pop() {
            source += text;
            source.push('\n');
            for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
                if let Some((name, texts)) = self.texts.get_key_value(word)
                    && reached.insert(*name)
                {
                    open.extend(texts);
                }
            }
        }
        // A rule that is addressed by a computed name may be any rule, so all of them count.
        let dense: String = source.chars().filter(|c| !c.is_whitespace()).collect();
        if dense.contains("data[") || names_any(&dense) {
            open.extend(self.texts.values().flatten());
            for text in open {
                source += text;
                source.push('\n');
            }
        }
        mentions.add(&super::engine::without_comments(&source));
        for file in self.data {
            mentions.add(&file.text);
        }
    }
}

/// Returns true if a path below `data` is followed by brackets, so that a computed name may follow.
fn names_any(dense: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    dense.match_indices("data.").any(|(at, _)| {
        let rest = &dense[at..];
        rest.trim_start_matches(is_path).starts_with('[')
    })
}

fn span_text(text: &str, start: u32, end: u32) -> &str {
    text.get(start as usize..end as usize).unwrap_or_default()
}

/// Returns the name of a rule, and the start and the end of the name in the source.
pub(super) fn head_name(rule: &Rule) -> Option<(String, usize, usize)> {
    let reference = match rule {
        Rule::Spec { head, .. } => match head {
            RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. } | RuleHead::Func { refr, .. } => refr,
        },
        Rule::Default { refr, .. } => refr,
    };
    let mut expression: &Expr = reference;
    loop {
        match expression {
            Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } => expression = refr,
            Expr::Var { span, .. } => {
                return Some((span.text().to_owned(), span.start as usize, span.end as usize));
            }
            _ => return None,
        }
    }
}
