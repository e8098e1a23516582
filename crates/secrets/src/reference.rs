//! References to secrets: `ref+STORE://PATH?version=N#/KEY` (as helmfile's vals writes them), anywhere in a
//! text, and `ref://NAME/KEY?version=N` (as Kusion writes them), which is the whole text.
//!
//! This module is only the grammar. A reference names a store and a path; `crates/policy/src/` decides which store is
//! meant and whether the stack may read the secret.

use std::fmt::Write as _;

/// The form in which a reference names its store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreName {
    /// `ref://…`: the default store.
    Default,
    /// `ref+WORD://…`: the name of a store, or a kind of store if there is only one of that kind.
    Word(String),
    /// `ref+generated://…`: no store. The value is generated when the object is first written, and then stays in the
    /// cluster.
    Generated,
}

/// The word of [`StoreName::Generated`], which is not a name of a store.
pub const GENERATED: &str = "generated";

impl StoreName {
    fn from_word(word: &str) -> Self {
        match word {
            GENERATED => Self::Generated,
            word => Self::Word(word.to_owned()),
        }
    }

    /// Returns the word between `ref+` and `://`; `None` for Kusion's form.
    fn word(&self) -> Option<&str> {
        match self {
            Self::Default => None,
            Self::Word(word) => Some(word),
            Self::Generated => Some(GENERATED),
        }
    }
}

/// A reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretReference {
    /// The store with the value.
    pub store: StoreName,
    /// The path in the store: components of letters, digits and `_ . - @ : = ~`, none of them `.` or `..`.
    pub path: String,
    /// The keys that lead to the value inside the secret; empty for the whole secret.
    pub keys: Vec<String>,
    /// The version that the author requests.
    pub version: Option<String>,
    /// True for `?as=version`: the value is the version itself, which is not secret.
    pub as_version: bool,
    /// The version that the plan found (`?at=`). Only Konverge writes it.
    pub at: Option<String>,
    /// The names of other parameters, which have no meaning.
    pub unknown: Vec<String>,
}

/// The error for a text that starts like a reference but breaks a rule of the grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid reference to a secret: {why}")]
pub struct MalformedReference {
    /// The reference as written.
    pub text: String,
    /// The rule that the reference breaks.
    pub why: &'static str,
}

/// A part of a text that contains references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text that is not secret.
    Text(String),
    /// A value of a secret store.
    Reference(SecretReference),
}

/// A text with at least one reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretTemplate {
    /// Literal text and references, in order.
    pub parts: Vec<TemplatePart>,
}

/// The prefix of every reference except Kusion's. vals also accepts `secretref+`.
const MARK: &str = "ref+";
const LONG_MARK: &str = "secretref+";
/// The prefix and suffix of a placeholder in a field that must be a JSON document.
const JSON_STAND_IN: (&str, &str) = ("{\"konverge\":\"", "\"}");
/// The beginning of a reference in Kusion's form.
const KUSION: &str = "ref://";

impl SecretTemplate {
    /// Parses a text; `None` if it contains no reference.
    ///
    /// # Errors
    /// A reference breaks a rule. The first such reference.
    pub fn parse(text: &str) -> Result<Option<Self>, MalformedReference> {
        // A reference in Kusion's form is always the whole text.
        if let Some(rest) = text.trim().strip_prefix(KUSION) {
            let reference = read_kusion(rest).map_err(|why| malformed(text.trim(), why))?;
            let parts = vec![TemplatePart::Reference(reference)];
            return Ok(Some(Self { parts }));
        }
        let mut parts = Vec::new();
        let (mut kept, mut from) = (0, 0);
        while let Some(found) = text[from..].find(MARK).map(|at| from + at) {
            let after = found + MARK.len();
            // Without a word and `://` after the prefix, this is ordinary text.
            let Some((word, start)) = store_word(text, after) else {
                from = after;
                continue;
            };
            let begins = if text[..after].ends_with(LONG_MARK) {
                after - LONG_MARK.len()
            } else {
                found
            };
            let length = text[start..].find(ends_reference).unwrap_or(text.len() - start);
            let end = start + length;
            let reference = read_body(StoreName::from_word(word), &text[start..end])
                .map_err(|why| malformed(&text[begins..end], why))?;
            if kept < begins {
                parts.push(TemplatePart::Text(text[kept..begins].to_owned()));
            }
            parts.push(TemplatePart::Reference(reference));
            // A `+` after a reference only ends it and is not part of the text.
            kept = if text[end..].starts_with('+') {
                end + 1
            } else {
                end
            };
            from = kept;
        }
        if parts.is_empty() {
            return Ok(None);
        }
        if kept < text.len() {
            parts.push(TemplatePart::Text(text[kept..].to_owned()));
        }
        Ok(Some(Self { parts }))
    }

    /// Returns a JSON placeholder for the value, for a plan in which the server parses the field as JSON. In other
    /// fields the text of the template itself is sent.
    pub fn json_stand_in(&self) -> String {
        format!("{}{self}{}", JSON_STAND_IN.0, JSON_STAND_IN.1)
    }

    /// Returns the template of a JSON placeholder, or of a text as written.
    pub fn from_stand_in(text: &str) -> Option<Self> {
        let inner = text.strip_prefix(JSON_STAND_IN.0);
        let inner = inner.and_then(|text| text.strip_suffix(JSON_STAND_IN.1));
        Self::parse(inner.unwrap_or(text)).ok().flatten()
    }

    /// Returns the references, in order.
    pub fn references(&self) -> impl Iterator<Item = &SecretReference> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Reference(reference) => Some(reference),
            TemplatePart::Text(_) => None,
        })
    }

    /// Returns the template with each reference changed.
    ///
    /// # Errors
    /// Errors of `change`.
    pub fn try_map<E>(
        &self,
        mut change: impl FnMut(&SecretReference) -> Result<SecretReference, E>,
    ) -> Result<Self, E> {
        let parts = self.parts.iter().map(|part| {
            Ok(match part {
                TemplatePart::Text(text) => TemplatePart::Text(text.clone()),
                TemplatePart::Reference(reference) => TemplatePart::Reference(change(reference)?),
            })
        });
        Ok(Self {
            parts: parts.collect::<Result<_, E>>()?,
        })
    }

    /// Returns true if the resolved text is not secret, because only versions are filled in.
    pub fn is_plain(&self) -> bool {
        self.references().all(|reference| reference.as_version)
    }

    /// Returns the reference if it is the whole text.
    pub fn whole(&self) -> Option<&SecretReference> {
        match self.parts.as_slice() {
            [TemplatePart::Reference(reference)] => Some(reference),
            _ => None,
        }
    }
}

/// Formats the template as the text from which it is parsed.
impl std::fmt::Display for SecretTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                TemplatePart::Text(text) => f.write_str(text)?,
                TemplatePart::Reference(reference) => {
                    write!(f, "{reference}")?;
                    if at + 1 < self.parts.len() {
                        f.write_char('+')?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl SecretReference {
    /// Returns the reference for display: `STORE:PATH#/KEY`.
    pub fn label(&self) -> String {
        let store = self.store.word().unwrap_or("default");
        format!("{store}:{}{}", self.path, self.fragment())
    }

    /// Returns the label, with the version that the author requests.
    pub fn pinned_label(&self) -> String {
        let Some(version) = &self.version else {
            return self.label();
        };
        let store = self.store.word().unwrap_or("default");
        format!("{store}:{}?version={version}{}", self.path, self.fragment())
    }

    /// Creates the reference of a generated value. `None` if a reference cannot contain the names, which come from
    /// another program.
    pub fn generated(path: &str, key: &str) -> Option<Self> {
        let text = format!("{MARK}{GENERATED}://{path}#/{key}");
        let template = SecretTemplate::parse(&text).ok().flatten()?;
        let reference = template.whole()?.clone();
        (reference.path == path && reference.keys == [key]).then_some(reference)
    }

    /// Returns true if Konverge generates the value itself.
    pub fn is_generated(&self) -> bool {
        self.store == StoreName::Generated
    }

    fn fragment(&self) -> String {
        self.keys.iter().fold(String::new(), |mut text, key| {
            text.push_str(if text.is_empty() { "#/" } else { "/" });
            text.push_str(key);
            text
        })
    }

    /// Returns the reference as the author wrote it: without the version that a plan found.
    #[must_use]
    pub fn as_written(&self) -> Self {
        Self {
            at: None,
            ..self.clone()
        }
    }
}

impl std::fmt::Display for SecretReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(store) = self.store.word() else {
            let version = self.version.iter().map(|version| format!("?version={version}"));
            let keys: String = self.keys.iter().map(|key| format!("/{key}")).collect();
            return write!(f, "{KUSION}{}{keys}{}", self.path, version.collect::<String>());
        };
        write!(f, "{MARK}{store}://{}", self.path)?;
        let version = self.version.iter().map(|version| format!("version={version}"));
        let as_version = self.as_version.then(|| "as=version".to_owned());
        let at = self.at.iter().map(|version| format!("at={version}"));
        let unknown = self.unknown.iter().map(|name| format!("{name}="));
        let parameters: Vec<_> = version.chain(as_version).chain(at).chain(unknown).collect();
        if !parameters.is_empty() {
            write!(f, "?{}", parameters.join("&"))?;
        }
        f.write_str(&self.fragment())
    }
}

/// Returns the word between `ref+` and `://`, and the position after them.
fn store_word(text: &str, after: usize) -> Option<(&str, usize)> {
    let rest = &text[after..];
    let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))?;
    let is_store = length > 0 && rest[length..].starts_with("://");
    is_store.then(|| (&rest[..length], after + length + "://".len()))
}

fn ends_reference(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "+\"',;`<>{}()|\\".contains(c)
}

/// Parses `PATH?version=N#/KEY`.
fn read_body(store: StoreName, body: &str) -> Result<SecretReference, &'static str> {
    let (body, fragment) = body.split_once('#').unwrap_or((body, ""));
    let (path, parameters) = body.split_once('?').unwrap_or((body, ""));
    let keys = fragment.strip_prefix('/').unwrap_or(fragment);
    let keys: Vec<_> = match keys {
        "" => Vec::new(),
        keys => keys.split('/').map(str::to_owned).collect(),
    };
    finish(store, path, keys, parameters)
}

/// Parses `NAME/KEY?version=N`.
fn read_kusion(body: &str) -> Result<SecretReference, &'static str> {
    let (path, parameters) = body.split_once('?').unwrap_or((body, ""));
    let (name, key) = path.split_once('/').unwrap_or((path, ""));
    let keys = (!key.is_empty()).then(|| key.to_owned()).into_iter().collect();
    finish(StoreName::Default, name, keys, parameters)
}

fn finish(
    store: StoreName,
    path: &str,
    keys: Vec<String>,
    parameters: &str,
) -> Result<SecretReference, &'static str> {
    check_path(path)?;
    let is_key =
        |key: &String| !key.is_empty() && !key.contains(['%', '?', '#']) && key.chars().all(is_printed);
    if !keys.iter().all(is_key) {
        return Err("a key after `#/` is not empty and contains no `%`, `?` or `#`");
    }
    let mut reference = SecretReference {
        store,
        path: path.to_owned(),
        keys,
        version: None,
        as_version: false,
        at: None,
        unknown: Vec::new(),
    };
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let is_version = !value.is_empty() && value.chars().all(is_path_character);
        match name {
            "version" if !is_version || value.contains(':') => {
                return Err("a version is made of letters, digits and `_ . - @ = ~`");
            }
            // In a store without versions the plan writes `hash:DIGITS` instead.
            "at" if !is_version => {
                return Err("a version is made of letters, digits and `_ . - @ = ~`");
            }
            "version" => reference.version = Some(value.to_owned()),
            "at" => reference.at = Some(value.to_owned()),
            "as" if value == "version" => reference.as_version = true,
            "as" => return Err("the only value of `as` is `version`"),
            other => reference.unknown.push(other.to_owned()),
        }
    }
    Ok(reference)
}

fn check_path(path: &str) -> Result<(), &'static str> {
    let mut components = path.strip_prefix('/').unwrap_or(path).split('/');
    if path.is_empty() || components.clone().any(str::is_empty) {
        return Err("its path is empty or has an empty component");
    }
    if components.any(|component| component == "." || component == "..") {
        return Err("its path has a component `.` or `..`");
    }
    if path.chars().all(|c| is_path_character(c) || c == '/') {
        Ok(())
    } else {
        Err("its path is made of letters, digits, `/` and `_ . - @ : = ~`")
    }
}

fn is_path_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-@:=~".contains(c)
}

fn is_printed(c: char) -> bool {
    !c.is_control()
}

fn malformed(text: &str, why: &'static str) -> MalformedReference {
    MalformedReference {
        text: text.chars().take(120).flat_map(char::escape_debug).collect(),
        why,
    }
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
