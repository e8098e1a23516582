//! The CEL expressions that health rules and policies share: values and evaluation.

pub mod cel_expression;
pub mod cel_value;
