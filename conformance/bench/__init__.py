"""Measuring a server: arrivals, prompts, the client, and figures from raw events. Imports the contract and aiohttp, no framework."""
