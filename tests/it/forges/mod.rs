//! What holds at every forge: the same story at the fake GitHub and at a real Gitea.

mod histories;
mod hosts;
mod model;
mod shapes;
