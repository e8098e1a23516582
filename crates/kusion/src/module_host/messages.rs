//! The messages of Kusion's module protocol. The protocol's service `Module` has no protobuf package.

/// Request to a module. All parts are YAML; a missing one is empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModuleRequest {
    /// Name of the project.
    #[prost(string, tag = "1")]
    pub project: String,
    /// Name of the stack.
    #[prost(string, tag = "2")]
    pub stack: String,
    /// Name of the application.
    #[prost(string, tag = "3")]
    pub app: String,
    /// The workload as YAML.
    #[prost(bytes = "vec", tag = "4")]
    pub workload: Vec<u8>,
    /// The developer's values as YAML.
    #[prost(bytes = "vec", tag = "5")]
    pub dev_config: Vec<u8>,
    /// The platform's values as YAML.
    #[prost(bytes = "vec", tag = "6")]
    pub platform_config: Vec<u8>,
    /// The context of the workspace as YAML.
    #[prost(bytes = "vec", tag = "7")]
    pub context: Vec<u8>,
    /// The secret store of the workspace as YAML.
    #[prost(bytes = "vec", tag = "8")]
    pub secret_store: Vec<u8>,
}

/// Response of a module, as YAML.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModuleReply {
    /// The resources as YAML.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub resources: Vec<Vec<u8>>,
    /// The patches of the workload as YAML. Kusion 0.11 had a list, later versions one: both have the same
    /// form on the wire.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub patchers: Vec<Vec<u8>>,
}

/// A message without fields.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Empty {}
