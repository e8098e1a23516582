//! The small typed schema between the readers and the writer.

use std::collections::BTreeMap;

/// The folder of a package below the folder of the models: `["argoproj_io", "v1alpha1"]`. Each part is an identifier
/// of KCL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageName(pub Vec<String>);

/// The name of a schema in KCL, with its package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaName {
    /// The package.
    pub package: PackageName,
    /// The name of the schema.
    pub name: String,
}

/// A schema that has a name in its source: a kind, a definition of OpenAPI, a Terraform resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRoot {
    /// The name.
    pub name: SchemaName,
    /// The word by which `--only` selects it; `None` for a definition that only others use.
    pub kind: Option<String>,
    /// The title for the head of its file: `Application of argoproj.io/v1alpha1`.
    pub title: String,
    /// The object.
    pub object: ModelObject,
}

/// An object with known properties.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ModelObject {
    /// The documentation.
    pub doc: String,
    /// The properties, in the order of the source.
    pub properties: Vec<ModelProperty>,
    /// The values of properties that are not listed; `None` if there can be none.
    pub others: Option<Box<ModelValue>>,
    /// The keywords of the source that are not translated, with their counts.
    pub untranslated: BTreeMap<String, u32>,
}

/// A property of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelProperty {
    /// The name in the source.
    pub name: String,
    /// The documentation.
    pub doc: String,
    /// The default in the source, as JSON. It is documentation.
    pub default: Option<String>,
    /// Optional, required or fixed.
    pub presence: Presence,
    /// The value.
    pub value: ModelValue,
}

/// The rule whether a property must be given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Presence {
    /// It may be absent.
    Optional,
    /// It must be given and cannot be null.
    Required,
    /// It must be given and can be null.
    RequiredOrNull,
    /// It always has this value: `apiVersion` and `kind` of an object.
    Fixed(String),
}

/// A type with its checks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelValue {
    /// The type.
    pub kind: ModelType,
    /// The checks that the value must pass.
    pub checks: Vec<ValueCheck>,
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ModelType {
    /// Any value.
    Any,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A string.
    Str,
    /// One of these strings.
    Literals(Vec<String>),
    /// A list.
    List(Box<ModelValue>),
    /// A mapping with free keys.
    Map(Box<ModelValue>),
    /// An object that has no name yet.
    Object(Box<ModelObject>),
    /// The object with this number among the equal ones of a package.
    Shared(usize),
    /// An object with a name.
    Schema(SchemaName),
    /// One of these types.
    Union(Vec<ModelType>),
}

/// A check that KCL does as the server does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueCheck {
    /// At least so many characters.
    MinLength(u64),
    /// At most so many characters.
    MaxLength(u64),
    /// A pattern that the core's engine reads as Go does.
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
    /// A type without checks.
    pub fn new(kind: ModelType) -> Self {
        Self {
            kind,
            checks: Vec::new(),
        }
    }
}

impl ModelProperty {
    /// An optional property without documentation.
    pub fn optional(name: &str, kind: ModelType) -> Self {
        Self {
            name: name.to_owned(),
            doc: String::new(),
            default: None,
            presence: Presence::Optional,
            value: ModelValue::new(kind),
        }
    }

    /// A property that always has this text.
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

    /// An object that allows every property.
    pub fn is_open(&self) -> bool {
        self.others.is_some()
    }
}

impl ModelType {
    /// Calls a function with every type inside, and this one.
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

impl ModelObject {
    /// Calls a function with the type of each property, and every type inside.
    pub fn visit(&self, visitor: &mut impl FnMut(&ModelType)) {
        let others = self.others.iter().map(AsRef::as_ref);
        let values = self.properties.iter().map(|property| &property.value);
        values.chain(others).for_each(|value| value.kind.visit(visitor));
    }
}
