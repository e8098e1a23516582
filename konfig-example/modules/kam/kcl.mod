[package]
name = "kam"
edition = "v0.13.0"
version = "0.2.2"
description = "What an application is: a workload and its accessories"
