//! Policy sets: rules in Rego, ValidatingAdmissionPolicies and Gatekeeper's constraints, evaluated on the plan
//! document of a stack. Without I/O, except for [`workers`]; `run::policy_set_loader` reads the files.
//!
//! `document` builds the plan document. `set_rules` parses the rules of one set and evaluates them in their
//! language (`rego`, `admission`, `gatekeeper`); `possible_reads` decides if a rule may read a value that is
//! unknown before the apply. `set` turns outcomes into findings and masks their secrets. `all_sets` has all sets of
//! a configuration, and applies the exceptions.

mod admission;
#[cfg(test)]
mod admission_tests;
mod all_sets;
#[cfg(test)]
mod certain_tests;
mod document;
mod exception;
#[cfg(test)]
mod exception_tests;
mod finding_mask;
mod gatekeeper;
#[cfg(test)]
mod gatekeeper_tests;
mod go_regex;
#[cfg(test)]
mod hostile_tests;
mod kubernetes_cel;
mod moved_resources;
#[cfg(test)]
mod override_tests;
mod possible_reads;
mod rego;
mod rule;
mod set;
mod set_rules;
#[cfg(test)]
mod tests;
pub mod workers;

pub use all_sets::PolicySets;
pub use document::{document, update_document};
pub use moved_resources::MovedResources;
pub use rule::{FailedTest, NoOutcomes, PolicyFile, RuleOutcome};
pub use set::PolicySet;
pub use set_rules::{SetRules, SetSource};
