"""Coordinators and their clients, under loss, delay, duplication and failing leaders."""
