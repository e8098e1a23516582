//! Stacks that a controller delivers (`stacks[].deliver`): the Kubernetes part of an apply is the push of one artifact,
//! and the wait until Argo CD or Flux is healthy at its digest. A preview stays a dry run on the live cluster, with the
//! controller's field manager: the server computes what the controller would write.

mod argocd;
mod artifact;
mod choice;
mod controller;
mod controller_status;
mod end;
mod flux;
mod progress;
mod record;
mod runtime;
mod wait;

pub use artifact::artifact;
pub use choice::{ChosenRuntimes, DeliveryChoice, DeliveryWarning};
pub use controller_status::{ControllerStatus, left_to_controller};
pub use end::{ends, has_objects, named_cluster, take_back};
pub use record::{ended, forget};
