//! The typed schema of a model: readers of CRDs, OpenAPI and providers make it, and the writer prints it as KCL.

use std::collections::BTreeMap;

/// The folders of a package, such as `["argoproj_io", "v1alpha1"]`. Each is a KCL identifier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageName(pub Vec<String>);

/// The name of a schema in KCL, with its package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaName {
    /// The package that contains the schema.
    pub package: PackageName,
    /// The name of the schema.
    pub name: String,
}

/// A schema with a name in its source: a kind, an OpenAPI definition, or a Terraform resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRoot {
    /// The name of the schema in KCL.
    pub name: SchemaName,
    /// The word by which `--only` selects it; `None` for a definition that only other schemas use.
    pub kind: Option<String>,
    /// The title at the top of its file: `Application of argoproj.io/v1alpha1`.
    pub title: String,
    /// The object that the schema describes.
    pub object: ModelObject,
}

/// An object with known properties.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ModelObject {
    /// The documentation of the object.
    pub doc: String,
    /// The properties, in the order of the source.
    pub properties: Vec<ModelProperty>,
    /// The schema of properties that are not listed; `None` if no other property is allowed.
    pub others: Option<Box<ModelValue>>,
    /// The number of untranslated keywords of the source, by keyword.
    pub untranslated: BTreeMap<String, u32>,
}

/// A property of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelProperty {
    /// The name in the source.
    pub name: String,
    /// The documentation of the property.
    pub doc: String,
    /// The default in the source, as JSON. It is only documentation.
    pub default: Option<String>,
    /// The rule for a missing property: optional, required or fixed.
    pub presence: Presence,
    /// The type and the checks of the property.
    pub value: ModelValue,
}

/// The rule for a missing property.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Presence {
    /// The property may be absent.
    Optional,
    /// The property must be present and not null.
    Required,
    /// The property must be present, and may be null.
    RequiredOrNull,
    /// The property always has this value, such as `apiVersion` and `kind`.
    Fixed(String),
}

/// A type with its checks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelValue {
    /// The type of the value.
    pub kind: ModelType,
    /// The checks that the value must pass.
    pub checks: Vec<ValueCheck>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ModelType {
    /// Any value.
    Any,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A number with a fraction: KCL's `float`.
    Float,
    /// A string: KCL's `str`.
    Str,
    /// One of these strings.
    Literals(Vec<String>),
    /// A list whose items have this type.
    List(Box<ModelValue>),
    /// A mapping with free keys.
    Map(Box<ModelValue>),
    /// An object without a name.
    Object(Box<ModelObject>),
    /// The object with this number among the nameless objects of a package.
    Shared(usize),
    /// An object with a name.
    Schema(SchemaName),
    /// One of these types.
    Union(Vec<ModelType>),
}

/// A check that KCL can do exactly as the server does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueCheck {
    /// At least so many characters.
    MinLength(u64),
    /// At most so many characters.
    MaxLength(u64),
    /// The string matches this pattern, which has the same meaning in Rust and Go.
    Pattern(String),
    /// At least this number, or more than it.
    Minimum {
        /// The number, as KCL writes it.
        limit: String,
        /// The number itself is not allowed.
        exclusive: bool,
    },
    /// At most this number, or less than it.
    Maximum {
        /// The number, as KCL writes it.
        limit: String,
        /// The number itself is not allowed.
        exclusive: bool,
    },
    /// A multiple of this number.
    MultipleOf(i64),
    /// At least so many items, or properties.
    MinItems(u64),
    /// At most so many items, or properties.
    MaxItems(u64),
    /// One of these values, as KCL writes them.
    OneOf(Vec<String>),
    /// No two items are equal.
    UniqueItems,
    /// No two items have the same values of these properties.
    UniqueKeys(Vec<String>),
}

impl ModelValue {
    /// Creates a type without checks.
    pub fn new(kind: ModelType) -> Self {
        Self {
            kind,
            checks: Vec::new(),
        }
    }
}

impl ModelProperty {
    /// Creates an optional property without documentation.
    pub fn optional(name: &str, kind: ModelType) -> Self {
        Self {
            name: name.to_owned(),
            doc: String::new(),
            default: None,
            presence: Presence::Optional,
            value: ModelValue::new(kind),
        }
    }

    /// Creates a property that always has this text.
    pub fn fixed(name: &str, value: &str) -> Self {
        Self {
            presence: Presence::Fixed(value.to_owned()),
            ..Self::optional(name, ModelType::Str)
        }
    }
}

impl ModelObject {
    /// Counts a keyword that is not translated.
    pub fn leave_out(&mut self, keyword: &str, times: u32) {
        *self.untranslated.entry(keyword.to_owned()).or_default() += times;
    }

    /// Returns true for an object that allows every property.
    pub fn is_open(&self) -> bool {
        self.others.is_some()
    }

    /// Calls a function with the type of each property and every nested type.
    pub fn visit(&self, visitor: &mut impl FnMut(&ModelType)) {
        let others = self.others.iter().map(AsRef::as_ref);
        let values = self.properties.iter().map(|property| &property.value);
        values.chain(others).for_each(|value| value.kind.visit(visitor));
    }
}

impl ModelType {
    /// Calls a function with this type and every nested type.
    pub fn visit(&self, visitor: &mut impl FnMut(&Self)) {
        visitor(self);
        match self {
            Self::List(value) | Self::Map(value) => value.kind.visit(visitor),
            Self::Union(kinds) => kinds.iter().for_each(|kind| kind.visit(visitor)),
            Self::Object(object) => object.visit(visitor),
            _ => {}
        }
    }
}
