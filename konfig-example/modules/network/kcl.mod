[package]
name = "network"
edition = "v0.13.0"
version = "0.3.0"
description = "The ports of an application"
