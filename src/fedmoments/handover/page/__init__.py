"""The files of the page that classifies in a browser; ``formats/web_page.py`` puts a model beside them."""
