//! The monorepo in git: its trees ([`git`]), its projects and stacks ([`konfig`]), and the stacks that a change affects
//! ([`affected`]).

pub mod affected;
pub mod git;
pub mod konfig;
