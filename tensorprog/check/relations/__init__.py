"""What composition cannot see because the parts of an expression have to do with each other: u / (1 + u**2)."""
