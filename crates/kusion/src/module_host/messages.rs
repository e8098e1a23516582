//! The messages of Kusion's module protocol. Their service `Module` is in no package.

/// What a module is asked for. All parts are YAML; what is absent is empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModuleRequest {
    #[prost(string, tag = "1")]
    pub project: String,
    #[prost(string, tag = "2")]
    pub stack: String,
    #[prost(string, tag = "3")]
    pub app: String,
    #[prost(bytes = "vec", tag = "4")]
    pub workload: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub dev_config: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    pub platform_config: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    pub context: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    pub secret_store: Vec<u8>,
}

/// What a module answers, as YAML.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModuleReply {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub resources: Vec<Vec<u8>>,
    /// Kusion 0.11 had several; one alone has the same form on the wire.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub patchers: Vec<Vec<u8>>,
}

/// A message without fields.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Empty {}
