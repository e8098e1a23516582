//! Exports a compiled stack to other tools: a Helm chart, or files for Argo CD, Flux, KubeVela and Crossplane.
//!
//! A [`Bundle`] has the objects by level, the unknown values, the edges, and the left out resources. An
//! [`ExportTarget`] only wraps it. Two rules hold for all targets:
//!
//! - Nothing is dropped silently. What a target cannot express becomes a required value, is left out on request and
//!   listed, or is refused by name.
//! - The files depend only on the Spec and the options: the same Spec gives the same bytes.

mod argocd;
mod bundle;
mod crossplane;
mod document;
mod edges;
mod error;
mod exported;
mod flux;
mod helm;
mod names;
mod oam;
mod object_text;
mod options;
mod secret_copies;
mod target;
mod value_places;
mod values;

pub use bundle::{Bundle, BundleObject, BundleRequest, LeaveOut, OmittedResource};
pub use document::{Document, Holds, KeptEdge, Loss, LostEdge};
pub use error::{ExportError, ExportRefusal, Why};
pub use exported::{Exported, Files};
pub use names::stack_slug;
pub use options::{ChartOptions, DeliverySource};
pub use target::{ExportTarget, export};
pub use value_places::{Place, RequiredValue, ValueCode, ValueGroup, ValuePart, ValuePlace};
