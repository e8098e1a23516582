//! Terraform
